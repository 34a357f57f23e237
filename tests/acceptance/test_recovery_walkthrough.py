"""docs/recovery.md, played step by step with real servers, real processes and real kills: every number in its tables is compared."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.kafka import Kafka, KafkaServer
from tests.acceptance.walkthrough import Walk


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
    database: str, kafka: KafkaServer, output_kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    walk = Walk(database, kafka.bootstrap_servers, output_kafka, topic_prefix, tmp_path)
    try:
        one_batch_killed_at_every_moment(walk)
        the_publisher_killed_on_both_sides_of_its_commit(walk)
        the_checkpoint_lost_twice(walk)
        kafka_away_at_the_output(walk)
    except BaseException:
        print(walk.job.tail(), walk.publisher.tail(), *walk.page.differences, sep="\n")
        raise
    finally:
        walk.job.destroy()
        walk.publisher.destroy()
    walk.page.assert_true()


def one_batch_killed_at_every_moment(walk: Walk) -> None:
    """Steps 1 to 6."""
    walk.feed(0, "A")
    walk.feed(1, "A")
    walk.job.start()
    walk.wait_for_finished(0)
    walk.job_step("1")

    walk.kill_job()
    walk.feed(0, "BC")
    walk.feed(1, "BC")
    walk.job_step("2")

    walk.run_job_until("query.before_action")
    walk.job_step("3")

    walk.run_job_until("sink.after_ledger")
    walk.job_step("4")

    walk.run_job_until("sink.after_commit")
    walk.job_step("5")

    walk.job.start()
    walk.wait_for_finished(1)
    walk.job_step("6")
    walk.compare_records()
    walk.compare_buckets(1)
    walk.kill_job()


def the_publisher_killed_on_both_sides_of_its_commit(walk: Walk) -> None:
    """Steps 7 to 9."""
    walk.run_publisher_until("transaction.before_commit")
    walk.publisher_step("7", log=True)

    walk.run_publisher_until("transaction.after_commit")
    walk.publisher_step("8", log=True)

    walk.publisher.start()
    walk.wait_for_mirror(2)
    walk.publisher_step("9", log=True)


def the_checkpoint_lost_twice(walk: Walk) -> None:
    """Steps 10 to 14."""
    walk.delete_checkpoint()
    walk.feed(0, "DE")
    walk.feed(1, "D")
    walk.job_step("10")

    walk.run_job_until("sink.after_commit", OUTBOX_JOB__MAX_EVENTS_PER_BATCH="2")
    walk.job_step("11")
    walk.wait_for_mirror(3)

    walk.delete_checkpoint()
    walk.job_step("12")

    walk.job.start()
    walk.wait_for_finished(0)
    walk.job_step("13")
    walk.compare_records()
    walk.compare_buckets(3)
    walk.wait_for_mirror(4)
    walk.publisher_step("14")


def kafka_away_at_the_output(walk: Walk) -> None:
    """Steps 15 and 16; then both services stop in order."""
    walk.outputs.kill()
    walk.feed(1, "E")
    walk.wait_for_finished(1)
    walk.job_step("15")
    walk.publisher_step("15", kafka=False)

    walk.outputs.start()
    walk.wait_for_mirror(5)
    walk.publisher_step("16")
    walk.compare_records()
    walk.stop()
