"""Spark's Kafka source, reduced to the columns that a task reads.

Spark chooses where each batch ends: it takes what Kafka has, at most `max_events` records (`maxOffsetsPerTrigger`). It divides this limit
among the partitions in proportion to what each has; a partition whose share is under one record still gets one. ledger/batch_size.py
chooses `max_events`; stream/pacing.py decides when the next batch begins.

The column `source` is one number for topic and partition: the topic's index in the settings * 2**20 + the partition.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from service.settings import KafkaSettings
from spark_job.input.columns import RecordColumns
from spark_job.input.offsets import Offsets

_PARTITION_BITS = 20
_LOG_APPEND_TIME = 1
# Options of Kafka's consumers inside Spark: fewer and larger answers, and hardly a wait for further records.
_CONSUMER = {
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(4 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": str(1 << 20),
    # After each fetch Spark asks for the partition's end: with Kafka's 500 ms a batch over many partitions would hardly end.
    "fetch.max.wait.ms": "5",
}


def source_number(topic_index: int, partition: int) -> int:
    """Return the number of a partition."""
    return (topic_index << _PARTITION_BITS) | partition


def offsets_json(offsets: Offsets, topic_ids: Mapping[str, str]) -> str:
    """Return Spark's JSON of offsets, `{topic: {partition: offset}}`. `topic_ids`: {topic: topic id} of those that are read."""
    by_id = offsets.to_json()
    return orjson.dumps({topic: by_id.get(topic_id, {}) for topic, topic_id in topic_ids.items()}).decode()


def offsets_of(text: str, topic_ids: Mapping[str, str]) -> Offsets:
    """Read Spark's JSON of offsets. `topic_ids`: {topic: topic id}."""
    return Offsets.from_json({topic_ids[topic]: places for topic, places in orjson.loads(text).items()})


def read_records(
    spark: SparkSession,
    kafka: KafkaSettings,
    topics: Sequence[str],
    columns: RecordColumns,
    *,
    start: str,
    max_events: int,
    login: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Return the streaming frame: source, offset, ts (ms), value, by_broker (1: the broker set ts), and those of `columns`, all binary.

    `login`: options of the Java client by which it logs in, if `[kafka] login` is set.
    """
    reader = spark.readStream.format("kafka")
    for name, value in (_CONSUMER | kafka.java(login)).items():
        reader = reader.option(f"kafka.{name}", value)
    # After the user's options, which must not change what exactly-once rests on.
    reader = (
        reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", max_events)
        .option("failOnDataLoss", "true")
    )
    if columns.headers:
        reader = reader.option("includeHeaders", "true")
    index = F.lit(0)
    for number, topic in enumerate(topics[1:], 1):
        index = F.when(F.col("topic") == topic, number).otherwise(index)
    selected = {
        "source": F.shiftleft(index, _PARTITION_BITS).bitwiseOR(F.col("partition")).cast("int"),
        "offset": F.col("offset"),
        "ts": F.unix_millis(F.col("timestamp")),
        "value": F.col("value"),
        "by_broker": F.when(F.col("timestampType") == _LOG_APPEND_TIME, 1).otherwise(0).cast("tinyint"),
    }
    selected |= {
        name: _header(header) if header else F.col("key") for name, header in columns.sources.items()
    }
    return reader.load().select(*[column.alias(name) for name, column in selected.items()])


def _header(name: str) -> Column:
    """Return the last value of a header; NULL if there is none. A name ends at a NUL, as in `service/kafka/record_headers.py`."""
    values = F.transform(
        F.filter(F.col("headers"), lambda h: (h["key"] == name) | h["key"].startswith(f"{name}\0")),
        lambda h: h["value"],
    )
    return F.try_element_at(values, F.lit(-1))
