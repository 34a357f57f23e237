"""docs/recovery.md, played step by step with real servers, real processes and real kills: every number in its tables is compared."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.kafka import Kafka, KafkaServer
from tests.support.pipeline.walkthrough import Walk

MENDED = {"OUTBOX_TRANSFORM__FUNCTION": "tests.support.pipeline.transforms:capitals"}


@pytest.fixture
def output_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka of the test's own: it will be killed."""
    server = Kafka(tmp_path / "output-kafka", heap="256m")
    server.start()
    yield server
    server.destroy()


@pytest.mark.faults
@pytest.mark.timeout(
    7_200
)  # ten starts: a minute or two on a quiet machine, an hour on one that is busy with other tests
def test_the_walk_through_shows_what_happens(
    new_database: Callable[[], str],
    kafka: KafkaServer,
    output_kafka: Kafka,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    walk = Walk(new_database(), kafka.bootstrap_servers, output_kafka, topic_prefix, tmp_path)
    try:
        one_batch_killed_at_every_moment(walk)
        the_publisher_killed_on_both_sides_of_its_commit(walk)
        the_disk_lost_twice(walk)
        kafka_away_at_the_output(walk)
        back_to_the_savepoint(walk, new_database())
        what_a_start_does_not_decide_alone(walk)
    except BaseException:
        print(walk.job.tail(), walk.publisher.tail(), *walk.page.differences, sep="\n")
        raise
    finally:
        walk.destroy()
    walk.page.assert_true()


def one_batch_killed_at_every_moment(walk: Walk) -> None:
    """Steps 1 to 7."""
    walk.feed(0, "A")
    walk.feed(1, "A")
    walk.job.start()
    walk.wait_for_batch(1)
    walk.job_step("1")

    walk.kill_job()
    walk.feed(0, "BC")
    walk.feed(1, "BC")
    walk.job_step("2")

    for step, point in enumerate(
        ("query.before_action", "task.after_cache", "sink.after_ledger", "sink.after_commit"), 3
    ):
        walk.run_job_until(point)
        walk.job_step(str(step))

    walk.job.start()
    walk.wait_for_start(6)
    walk.job_step("7")


def the_publisher_killed_on_both_sides_of_its_commit(walk: Walk) -> None:
    """Steps 8 to 10."""
    walk.run_publisher_until("transaction.before_commit")
    walk.publisher_step("8", log=True)

    walk.run_publisher_until("transaction.after_commit")
    walk.publisher_step("9", log=True)

    walk.publisher.start()
    walk.wait_for_mirror(2)
    walk.publisher_step("10", log=True)


def the_disk_lost_twice(walk: Walk) -> None:
    """Steps 11 to 15."""
    walk.command("spark-job savepoint create before-deploy")
    walk.kill_job()
    walk.lose_cache()
    walk.feed(0, "DE")
    walk.feed(1, "DE")
    walk.job_step("11")

    walk.run_job_until("query.before_return", OUTBOX_JOB__MAX_EVENTS_PER_BATCH="2")
    walk.job_step("12")
    walk.wait_for_mirror(3)

    walk.lose_cache()
    walk.job_step("13")

    walk.job.start()
    walk.wait_for_batch(4)
    walk.job_step("14")
    walk.compare_records()
    walk.wait_for_mirror(4)
    walk.publisher_step("15")


def kafka_away_at_the_output(walk: Walk) -> None:
    """Steps 16 and 17."""
    walk.outputs.kill()
    walk.feed(0, "F")
    walk.wait_for_batch(5)
    walk.job_step("16")
    walk.publisher_step("16", kafka=False)

    walk.outputs.start()
    walk.wait_for_mirror(5)
    walk.publisher_step("17")


def back_to_the_savepoint(walk: Walk, other_dsn: str) -> None:
    """Step 18, and a fork."""
    walk.stop_as_told()
    walk.command("spark-job savepoint restore before-deploy --policy reissue --yes")
    walk.run_as_told("spark-job run", **MENDED)
    walk.wait_for_batch(6)
    walk.job_step("18")
    walk.compare_records()
    walk.command("spark-job savepoint export before-deploy --output before-deploy.json")
    walk.command("spark-job fork before-deploy.json", OUTBOX_POSTGRES__DSN=other_dsn)
    walk.compare_fork(other_dsn)


def what_a_start_does_not_decide_alone(walk: Walk) -> None:
    """A changed assembly; then both services stop in order."""
    walk.stop_as_told()
    other = {**MENDED, "OUTBOX_SESSION__TIMEOUT_S": "43200"}
    walk.run_as_told("spark-job run", **other)
    assert walk.job.wait() == 5, walk.job.tail()
    (told,) = walk.page.texts
    assert " ".join(told.split()).removesuffix(".") in walk.job.log()
    walk.run_as_told("spark-job run --accept-changed-assembly", **other)
    walk.wait_for_start(10)
    walk.wait_for_mirror(6)
    walk.compare_records()
    walk.stop()
