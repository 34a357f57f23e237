"""How the input is read: committed records only, no gap passed in silence, in batches of bounded size, whatever the settings say."""

from typing import Any

import orjson
import pytest

from db.settings import KafkaSettings, SessionSettings, SourceSettings
from spark_job import source
from spark_job.offsets import Offsets, TopicPartition


class Reader:
    """Stands in for Spark's reader: remembers the options, the later ones winning as in Spark."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def format(self, name: str) -> "Reader":
        assert name == "kafka"
        return self

    def option(self, name: str, value: Any) -> "Reader":
        # Spark's option names do not tell cases apart.
        self.options[name.lower()] = value
        return self

    def load(self) -> str:
        return "records"


class Spark:
    """A session that has nothing but that reader."""

    def __init__(self) -> None:
        self.readStream = Reader()


@pytest.mark.parametrize(
    "wanted", [{}, {"isolation.level": "read_uncommitted", "bootstrap.servers": "elsewhere:9092"}]
)
def test_only_committed_records_are_read_and_no_lost_offset_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str]
) -> None:
    monkeypatch.setattr(source, "_cut_down", lambda records, *_: records)
    spark: Any = Spark()
    kafka = KafkaSettings(bootstrap_servers="here:9092", java_options=wanted | {"security.protocol": "SSL"})
    read: Any = source.read_events(
        spark,
        kafka,
        SourceSettings(topics=("a", "b")),
        SessionSettings(),
        start="{}",
        max_events=7,
        buckets=2,
        shuffle_partitions=1,
    )
    assert read == "records"
    assert spark.readStream.options == {
        "kafka.bootstrap.servers": "here:9092",
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": "SSL",
        "subscribe": "a,b",
        "startingoffsets": "{}",
        "maxoffsetspertrigger": 7,
        "failondataloss": "true",
    }


def test_a_partition_that_the_start_does_not_name_is_read_from_its_earliest_record() -> None:
    start = Offsets({TopicPartition("id-a", 0): 41})
    spark_json = source.starting_offsets(start, {"a": "id-a"}, {"a": [0, 1]})
    assert orjson.loads(spark_json) == {"a": {"0": 41, "1": -2}}
