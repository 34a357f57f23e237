"""Times of records that Spark moves, or cannot hold, arrive as Kafka has them; one that is no date makes its own record malformed."""

from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline.expectation import Share
from tests.support.pipeline.feed import clean, ends_of, starts_of, write
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import times
from tests.support.servers.raw_producer import RawRecord, produce

# The zero time of .NET and Go, and one that Spark's calendar has twice. Of each partition one: no other key's record is later.
BEGUN_AT_MS = [-62_135_596_800_000, -14_825_808_000_000]
BEYOND_SPARK_MS = [-(2**63), -9_300_000_000_000_000, 9_300_000_000_000_000, 2**63 - 1]
TIMES = Share(times)


@pytest.mark.guarantee(5, 156)
@pytest.mark.faults
def test_times_are_kafkas_in_a_batch_and_in_a_rebuild(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    options = {
        "session": {"time": "timestamp"},
        "transform": {"function": f"{times.__module__}:{times.__name__}"},
    }
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as pipeline:
        pipeline.input_topic.configure("retention.ms", "-1")  # by the records' times
        for side in ("before", "after"):
            pipeline.input_topic.configure(f"message.timestamp.{side}.max.ms", str(2**63 - 1))
        pipeline.publisher.start()
        pipeline.job.start()
        for partition, ((_, value, _), ms) in enumerate(zip(starts_of(["a", "b"]), BEGUN_AT_MS, strict=True)):
            send(pipeline, partition, value, [ms])
        pipeline.wait_for_input(pipeline.expectation(TIMES))
        assert "tasks_read_kafka" in pipeline.job.log()

        # What is open is read again, and has the digest that it had.
        pipeline.crash()
        pipeline.lose_cache()
        pipeline.job.start()
        for partition, ((_, value, _), ms) in enumerate(zip(ends_of(["a", "b"]), BEGUN_AT_MS, strict=True)):
            send(pipeline, partition, value, [ms + 1])
        send(pipeline, 2, b'{"session_key":"beyond"}', BEYOND_SPARK_MS)
        pipeline.wait_for_input(pipeline.expectation(TIMES))
        pipeline.wait_for_report()
        assert sum(pipeline.rebuilt()) == 2
        write(pipeline.bootstrap, pipeline.input, clean(93, 30))
        pipeline.finish(TIMES)
        assert pipeline.restarts() == []
        malformed = (
            "SELECT event_times_ms FROM outbox.dead_letter WHERE reason = 'malformed' ORDER BY first_offset"
        )
        assert pipeline.ask(malformed) == [([ms],) for ms in BEYOND_SPARK_MS]


def send(pipeline: Pipeline, partition: int, value: bytes, at_ms: list[int]) -> None:
    """Write the value once for each time."""
    produce(
        pipeline.bootstrap, pipeline.input, partition, [RawRecord(value, timestamp_ms=ms) for ms in at_ms]
    )
