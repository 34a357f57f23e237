"""Spark's Kafka source and the job's own reader give a task the same records, whatever a record holds."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import JobSettings, KafkaSettings
from spark_job.assembly import rows
from spark_job.assembly.record_readers import DirectReader
from spark_job.assembly.slices import AppliedRules, RulesFrom, Slice
from spark_job.assembly.task import AssemblyTask
from spark_job.input.columns import CLOCK_HEADER, CLOCK_MARK, RecordColumns
from spark_job.input.source import read_records
from spark_job.sessions.settings import AssemblySettings
from spark_job.spark.lazy_session import LazySession
from spark_job.stream.batch_action import BatchAction
from tests.support.histories.tasks import task_settings
from tests.support.reading import end_offsets
from tests.support.servers.raw_producer import CODECS, RawRecord, produce
from tests.support.waiting import wait_until

# The job ignores it, too (spark_job/spark/session.py); pytest forgets that with each test.
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

RULES = AssemblySettings(key_path=None, type_path=None, format="bytes", clock_records=True)
COLUMNS = RecordColumns({"key": "key", "type": "type", "clock": CLOCK_HEADER}).with_trace_context()
# Days behind UTC until 1867: Spark moves even times of the 19th century.
ZONE = "America/Juneau"
# Kafka's retention goes by the records' times, too.
ANY_TIME = {"retention.ms": "-1"} | {
    f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")
}

MIN, MAX = -(2**63), 2**63 - 1
ZERO_TIME = -62_135_596_800_000  # of .NET and Go
JULIAN_LEAP_DAYS = [-14_825_808_000_000, -14_825_721_600_000]  # Spark's calendar makes one day of both
LAST_OF_SPARK = 9_223_372_036_854_775
_PATIENCE_S = 400
"""For a machine that does much else meanwhile."""
EXAMPLES, MORE_EXAMPLES = 3, 20
"""Of each test, beside the named ones: each is a query of Spark."""
PLAIN_TIMES = st.integers(-2_177_452_800_000, LAST_OF_SPARK)
ALL_TIMES = st.one_of(st.integers(MIN, MAX), st.integers(-70_000_000_000_000, 0), PLAIN_TIMES)
CLOCK = CLOCK_HEADER.encode()
NAMES = st.sampled_from(
    [
        b"key",
        b"type",
        b"key\0x",
        b"type\0\xff",
        b"\xffkey",
        b"caf\xe9",
        b"",
        b"\0",
        b"traceparent",
        b"Key",
        CLOCK,
    ]
)
VALUES = st.one_of(st.none(), st.sampled_from([b"k", b"start_event", b"end_event", b"\xff", b"", b"1"]))


@dataclass(frozen=True)
class Stand:
    """A Spark whose JVM lives in that time zone."""

    spark: SparkSession
    kafka: KafkaServer
    folder: Path
    numbers: Iterator[int]


@pytest.fixture(scope="module")
def stand(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Spark as the job starts it."""
    folder = tmp_path_factory.mktemp("spark")
    java = {"spark.driver.extraJavaOptions": f"-Duser.timezone={ZONE} -XX:TieredStopAtLevel=1"}
    session = LazySession(JobSettings(master="local[1]", cache=str(folder), spark_options=java))
    try:
        yield Stand(session.get(), kafka, folder, itertools.count())
    finally:
        session.stop()


def records(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[RawRecord]]:
    """A partition's records."""
    headers = st.lists(st.tuples(NAMES, VALUES), max_size=5)
    some_bytes = st.none() | st.binary(max_size=5)
    record = st.builds(RawRecord, some_bytes, some_bytes, headers, times)
    return st.lists(record, min_size=1, max_size=40)


def whole(kind: bytes, ms: int, *more: tuple[bytes, bytes | None]) -> RawRecord:
    """An event of the session k."""
    return RawRecord(b"v", None, [(b"key", b"k"), (b"type", kind), *more], ms)


ODD_NAMES = [
    whole(b"start_event", 5, (b"\xff\xfe", b"1")),
    whole(b"entry_event", 6, (b"type\0x", b"end_event")),  # it is the last one of that name
    whole(b"start_event", 7, (b"caf\xe9", None), (b"key\0", b"other")),
]
EDGES = [MIN, MAX, ZERO_TIME, *JULIAN_LEAP_DAYS, -1, 0, LAST_OF_SPARK, LAST_OF_SPARK + 1, -LAST_OF_SPARK - 1]


@pytest.mark.guarantee(40)
@given(records(PLAIN_TIMES), st.sampled_from(sorted(CODECS)))
@example(ODD_NAMES, "none")
@example([whole(b"start_event", ms) for ms in (LAST_OF_SPARK, -1, 0)], "zstd")
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_record_whose_time_spark_holds(stand: Stand, given: list[RawRecord], codec: str) -> None:
    assert not was_read_directly(stand, given, codec)


@pytest.mark.guarantee(40)
@given(records(ALL_TIMES), st.sampled_from(sorted(CODECS)))
@example([whole(b"start_event", ms) for ms in EDGES], "none")
@example([whole(b"start_event", ZERO_TIME), whole(b"end_event", ZERO_TIME)], "gzip")
@example([whole(b"start_event", -9_300_000_000_000_000), whole(b"start_event", 0)], "none")
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_record_whatever_its_time(stand: Stand, given: list[RawRecord], codec: str) -> None:
    was_read_directly(stand, given, codec)


@pytest.mark.guarantee(40)
@pytest.mark.faults
@given(records(ALL_TIMES), st.sampled_from(sorted(CODECS)))
@settings(
    max_examples=MORE_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_many_more_records(stand: Stand, given: list[RawRecord], codec: str) -> None:
    was_read_directly(stand, given, codec)


@pytest.mark.guarantee(40)
@pytest.mark.faults
def test_batches_that_compaction_has_emptied(stand: Stand) -> None:
    """Kafka keeps the last batch of a producer, though all of its records are gone."""
    compacts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "60000"}
    topic = new_topic(stand, compacts)
    bootstrap = stand.kafka.bootstrap_servers
    now, hour = round(time.time() * 1_000), 3_600_000
    # The records' own times roll the segments; the newest segment is never compacted.
    for number, keys in enumerate(("abc", "abc", "xyz")):
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1_000})
        for key, kind in zip(keys, ("start_event", "entry_event", "end_event"), strict=True):
            headers: list[tuple[str, str | bytes | None]] = [("key", f"k{number}"), ("type", kind)]
            producer.produce(topic, b"v", key, headers=headers, timestamp=now + (number - 3) * hour)
        assert producer.flush(60) == 0
    wait_until(lambda: first_offset(bootstrap, topic) == 3, "the compaction of the first batch", 300)
    found, directly = read_both_ways(stand, topic)
    assert not directly
    assert [row["session_key"] for row in found if row["kind"] == rows.SESSION] == ["k1", "k2"]


def first_offset(bootstrap: str, topic: str) -> int | None:
    """Of the first record that a consumer gets."""
    with Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(10)
        return None if message is None or message.error() else message.offset()


@pytest.mark.guarantee(40)
def test_the_brokers_times_and_aborted_transactions(stand: Stand) -> None:
    """What only a broker writes: its own time, and the markers of transactions."""
    topic = new_topic(stand, {"message.timestamp.type": "LogAppendTime"})
    bootstrap = stand.kafka.bootstrap_servers
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "lz4"}
    )
    producer.init_transactions(60)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        for kind in ("start_event", "entry_event", "end_event"):
            producer.produce(topic, b"v", headers=[("key", f"k{number}"), ("type", kind)], timestamp=number)
        producer.produce(topic, None, headers=[(CLOCK_HEADER, CLOCK_MARK)], timestamp=number)
        producer.flush(60)
        ends(60)
    found, directly = read_both_ways(stand, topic)
    assert not directly
    assert [row["session_key"] for row in found if row["kind"] == rows.SESSION] == ["k0", "k2"]
    assert [row for row in found if row["kind"] == rows.LETTER] == []


def was_read_directly(stand: Stand, given: list[RawRecord], codec: str) -> bool:
    topic = new_topic(stand, ANY_TIME)
    produce(stand.kafka.bootstrap_servers, topic, 0, given, codec)
    found, directly = read_both_ways(stand, topic)
    sent = {offset: record.timestamp_ms for offset, record in enumerate(given)}
    for row in found:
        if row["kind"] == rows.LETTER and row["reason"] == "malformed":
            assert int.from_bytes(row["times"][-8:], signed=True) == sent[row["first_offset"]]
    return directly


def new_topic(stand: Stand, config: dict[str, str]) -> str:
    topic = f"alike-{next(stand.numbers)}-{stand.folder.name}"
    create_topics(stand.kafka.bootstrap_servers, {topic: (1, config)})
    return topic


def read_both_ways(stand: Stand, topic: str) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a task over the partition, the same both ways; and whether Spark's tasks had to read Kafka themselves."""
    bootstrap = stand.kafka.bootstrap_servers
    kafka = KafkaSettings(bootstrap_servers=bootstrap)
    end = end_offsets(bootstrap, [topic], committed=True)[topic, 0]
    of = Slice(topic, "id", 0, 0, end, 0, "", b"", (RulesFrom(0, AppliedRules(RULES, COLUMNS)),))
    task = AssemblyTask(task_settings(stand.folder / topic, kafka=kafka.client()), {0: of})
    action, tables = BatchAction(COLUMNS), list[pa.Table]()

    def on_batch(frame: DataFrame, _number: int) -> None:
        tables.append(action.run(frame, task, 1))

    frame = read_records(
        stand.spark, kafka, [topic], COLUMNS, start=f'{{"{topic}":{{"0":0}}}}', max_events=1_000
    )
    query = frame.writeStream.foreachBatch(on_batch).option(
        "checkpointLocation", str(stand.folder / f"{topic}-c")
    )
    assert query.trigger(availableNow=True).start().awaitTermination(_PATIENCE_S)
    by_spark = pa.concat_tables(tables).to_pylist()
    given = pa.record_batch({"id": pa.array([0], pa.int64())})
    itself = AssemblyTask(task.settings, task.slices, DirectReader(COLUMNS))([given])
    assert comparable(by_spark) == comparable(pa.Table.from_batches(itself).to_pylist())
    return by_spark, action.reads_directly


def comparable(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without how long it took, and without Arrow's bytes, which depend on how the same records were cut into arrays."""
    return [
        row | {"detail": _comparable(orjson.loads(row["detail"]))} if row["kind"] == rows.PARTITION else row
        for row in found
    ]


def _comparable(detail: dict[str, Any]) -> dict[str, Any]:
    return detail | {"seconds": None, "counts": detail["counts"] | {"bytes": None}}
