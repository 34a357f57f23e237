"""docs/recovery.md, played step by step with real servers, real processes and real kills: every number in its tables is compared."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.kafka import Kafka, KafkaServer
from tests.support.pipeline.walkthrough import Walkthrough

MENDED = {"OUTBOX_TRANSFORM__FUNCTION": "tests.support.pipeline.transforms:capitals"}


@pytest.fixture
def output_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka of the test's own: it will be killed."""
    server = Kafka(tmp_path / "output-kafka", fast=True, heap="256m")
    server.start()
    yield server
    server.destroy()


@pytest.mark.guarantee(35, 136)
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
    walkthrough = Walkthrough(new_database(), kafka.bootstrap_servers, output_kafka, topic_prefix, tmp_path)
    try:
        one_batch_killed_at_every_moment(walkthrough)
        the_publisher_killed_on_both_sides_of_its_commit(walkthrough)
        the_disk_lost_twice(walkthrough)
        kafka_away_at_the_output(walkthrough)
        back_to_the_savepoint(walkthrough, new_database())
        what_a_start_does_not_decide_alone(walkthrough)
    except BaseException:
        print(walkthrough.job.tail(), walkthrough.publisher.tail(), *walkthrough.page.differences, sep="\n")
        raise
    finally:
        walkthrough.destroy()
    walkthrough.page.assert_true()


def one_batch_killed_at_every_moment(walkthrough: Walkthrough) -> None:
    """Steps 1 to 7."""
    walkthrough.feed(0, "A")
    walkthrough.feed(1, "A")
    walkthrough.job.start()
    walkthrough.wait_for_batch(1)
    walkthrough.job_step("1")

    walkthrough.kill_job()
    walkthrough.feed(0, "BC")
    walkthrough.feed(1, "BC")
    walkthrough.job_step("2")

    for step, point in enumerate(
        ("query.before_action", "task.after_cache", "sink.after_ledger", "sink.after_commit"), 3
    ):
        walkthrough.run_job_until(point)
        walkthrough.job_step(str(step))

    walkthrough.job.start()
    walkthrough.wait_for_start(6)
    walkthrough.job_step("7")


def the_publisher_killed_on_both_sides_of_its_commit(walkthrough: Walkthrough) -> None:
    """Steps 8 to 10."""
    walkthrough.run_publisher_until("transaction.before_commit")
    walkthrough.publisher_step("8", log=True)

    walkthrough.run_publisher_until("transaction.after_commit")
    walkthrough.publisher_step("9", log=True)

    walkthrough.publisher.start()
    walkthrough.wait_for_mirror(2)
    walkthrough.publisher_step("10", log=True)


def the_disk_lost_twice(walkthrough: Walkthrough) -> None:
    """Steps 11 to 15."""
    walkthrough.command("spark-job savepoint create before-deploy")
    walkthrough.kill_job()
    walkthrough.lose_cache()
    walkthrough.feed(0, "DE")
    walkthrough.feed(1, "DE")
    walkthrough.job_step("11")

    walkthrough.run_job_until("query.after_batch", OUTBOX_JOB__MAX_EVENTS_PER_BATCH="2")
    walkthrough.job_step("12")
    walkthrough.wait_for_mirror(3)

    walkthrough.lose_cache()
    walkthrough.job_step("13")

    walkthrough.job.start()
    walkthrough.wait_for_batch(4)
    walkthrough.job_step("14")
    walkthrough.compare_records()
    walkthrough.wait_for_mirror(4)
    walkthrough.publisher_step("15")


def kafka_away_at_the_output(walkthrough: Walkthrough) -> None:
    """Steps 16 and 17."""
    walkthrough.outputs.kill()
    walkthrough.feed(0, "F")
    walkthrough.wait_for_batch(5)
    walkthrough.job_step("16")
    walkthrough.publisher_step("16", kafka=False)

    walkthrough.outputs.start()
    walkthrough.wait_for_mirror(5)
    walkthrough.publisher_step("17")


def back_to_the_savepoint(walkthrough: Walkthrough, other_dsn: str) -> None:
    """Step 18, and a fork."""
    walkthrough.stop_as_told()
    walkthrough.command("spark-job savepoint restore before-deploy --policy reissue --yes")
    walkthrough.run_as_told("spark-job run", **MENDED)
    walkthrough.wait_for_batch(6)
    walkthrough.job_step("18")
    walkthrough.compare_records()
    walkthrough.command("spark-job savepoint export before-deploy --output before-deploy.json")
    walkthrough.command("spark-job fork before-deploy.json", OUTBOX_POSTGRES__DSN=other_dsn)
    walkthrough.compare_fork(other_dsn)


def what_a_start_does_not_decide_alone(walkthrough: Walkthrough) -> None:
    """A changed assembly; then both services stop in order."""
    walkthrough.stop_as_told()
    other = {**MENDED, "OUTBOX_SESSION__TIMEOUT_S": "43200"}
    walkthrough.run_as_told("spark-job run", **other)
    assert walkthrough.job.wait() == 5, walkthrough.job.tail()
    (told,) = walkthrough.page.texts
    assert " ".join(told.split()).removesuffix(".") in walkthrough.job.log()
    walkthrough.run_as_told("spark-job run --accept-changed-assembly", **other)
    walkthrough.wait_for_start(10)
    walkthrough.wait_for_mirror(6)
    walkthrough.compare_records()
    walkthrough.stop()
