"""How the input is read: committed records only, no gap passed in silence, in batches of bounded size, whatever the settings say."""

from typing import Any
from unittest.mock import MagicMock

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.settings import KafkaSettings
from spark_job.input import source
from spark_job.input.columns import RecordColumns
from spark_job.input.offsets import Offsets, TopicPartition


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

    def load(self) -> "Reader":
        return self

    def select(self, *_columns: object) -> str:
        return "records"


class Spark:
    """A session that has nothing but that reader."""

    def __init__(self) -> None:
        self.readStream = Reader()


def options(monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings, columns: RecordColumns) -> dict[str, Any]:
    """What Spark is told."""
    monkeypatch.setattr(source, "F", MagicMock())  # columns need a running Spark
    spark: Any = Spark()
    read: Any = source.read_records(spark, kafka, ["a", "b"], columns, start="{}", max_events=7)
    assert read == "records"
    found: dict[str, Any] = spark.readStream.options
    return found


@pytest.mark.guarantee(17, 114, 151)
@pytest.mark.parametrize("wanted", [{}, {"isolation.level": "read_uncommitted"}])
def test_only_committed_records_are_read_and_no_lost_offset_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str]
) -> None:
    kafka = KafkaSettings(bootstrap_servers="here:9092", java_options=wanted)
    found = options(monkeypatch, kafka, RecordColumns())
    assert (
        found.items()
        >= {
            "kafka.bootstrap.servers": "here:9092",
            "kafka.isolation.level": "read_committed",
            "subscribe": "a,b",
            "startingoffsets": "{}",
            "maxoffsetspertrigger": 7,
            "failondataloss": "true",
        }.items()
    )
    assert "minpartitions" not in found, "it would cut a partition's records apart"


def test_a_users_option_wins_over_the_jobs_own_that_nothing_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(monkeypatch, KafkaSettings(), RecordColumns())["kafka.max.poll.records"] == "5000"
    wanted = KafkaSettings(java_options={"max.poll.records": "9"}, options={"security.protocol": "ssl"})
    found = options(monkeypatch, wanted, RecordColumns())
    assert found["kafka.max.poll.records"] == "9"
    assert found["kafka.security.protocol"] == "SSL"


@pytest.mark.parametrize(("sources", "wanted"), [({}, False), ({"key": ""}, False), ({"type": "kind"}, True)])
def test_headers_are_read_only_where_a_column_is_in_one(
    monkeypatch: pytest.MonkeyPatch, sources: dict[str, str], wanted: bool
) -> None:
    columns = RecordColumns(sources)
    assert ("includeheaders" in options(monkeypatch, KafkaSettings(), columns)) == wanted
    assert "includeheaders" in options(monkeypatch, KafkaSettings(), columns.with_trace_context())


IDS = {"a": "id-a", "b": "id-b"}
OFFSETS = Offsets({TopicPartition("id-a", 0): 41, TopicPartition("id-a", 1): 0})


def test_offsets_are_sparks_by_topic_and_ours_by_topic_id() -> None:
    text = source.offsets_json(Offsets({**OFFSETS, TopicPartition("not read", 0): 9}), IDS)
    assert orjson.loads(text) == {"a": {"0": 41, "1": 0}, "b": {}}
    assert source.offsets_of(text, IDS) == OFFSETS


@given(st.integers(0, 1_000), st.integers(0, (1 << 20) - 1))
def test_a_source_number_names_its_partition(topic: int, partition: int) -> None:
    number = source.source_number(topic, partition)
    assert divmod(number, 1 << 20) == (topic, partition)
    assert number < 2**31, "it travels as an int"


def test_a_records_columns_are_what_the_settings_name_and_the_last_header_counts() -> None:
    columns = RecordColumns({"key": "", "type": "kind", "event_id": "id"})
    table = columns.table([MESSAGE])
    assert table.to_pylist() == [
        {"offset": 3, "ts": 5, "value": b"v", "by_broker": 0, "key": b"k", "type": b"last", "event_id": None}
    ]
    assert table.schema.field("ts").type == pa.int64()


class Message:
    """A record as confluent-kafka gives it."""

    def offset(self) -> int:
        return 3

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def value(self) -> bytes:
        return b"v"

    def key(self) -> bytes:
        return b"k"

    def headers(self) -> list[tuple[str, bytes]]:
        return [("kind", b"first"), ("other", b"x"), ("kind", b"last")]


MESSAGE = Message()
