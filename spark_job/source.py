"""The input: a Kafka source whose records are cut down to the columns that the assembler reads.

A record's place is the number `source` = topic's index in the settings * 2**20 + partition, so that one int travels instead of a name.
"""

from collections.abc import Mapping, Sequence

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from db.settings import KafkaSettings, SessionSettings, SourceSettings
from spark_job.buckets import bucket_values
from spark_job.offsets import Offsets

_PARTITION_BITS = 20
_EARLIEST = -2


def source_number(topic_index: int, partition: int) -> int:
    """Return the number of a partition; the inverse is `source_place`."""
    return (topic_index << _PARTITION_BITS) | partition


def source_place(number: int) -> tuple[int, int]:
    """Return (topic's index, partition) of a source number."""
    return number >> _PARTITION_BITS, number & ((1 << _PARTITION_BITS) - 1)


def starting_offsets(
    start: Offsets, topic_ids: Mapping[str, str], partitions: Mapping[str, Sequence[int]]
) -> str:
    """Return Spark's `startingOffsets` JSON; a partition that `start` does not name begins at the earliest record.

    `topic_ids`: {topic: topic id}, `partitions`: {topic: its partitions now}.
    """
    by_place = {(where.topic_id, where.partition): offset for where, offset in start.items()}
    return orjson.dumps(
        {
            topic: {str(p): by_place.get((topic_ids[topic], p), _EARLIEST) for p in numbers}
            for topic, numbers in partitions.items()
        }
    ).decode()


def read_events(
    spark: SparkSession,
    kafka: KafkaSettings,
    source: SourceSettings,
    session: SessionSettings,
    *,
    start: str,
    max_events: int,
    buckets: int,
    shuffle_partitions: int,
) -> DataFrame:
    """Return the streaming frame: bucket, source, offset, ts (ms), and as bytes key, value and the header columns that are set."""
    reader = spark.readStream.format("kafka")
    for name, value in kafka.java_options.items():
        reader = reader.option(f"kafka.{name}", value)
    # After the user's options: what exactly-once rests on is not theirs to change.
    reader = (
        reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(source.topics))
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", max_events)
        .option("failOnDataLoss", "true")
    )
    headers = {
        column: setting.removeprefix("header:")
        for column, setting in (("type", session.type), ("event_id", session.event_id), ("key", session.key))
        if setting is not None and setting.startswith("header:")
    }
    if headers:
        reader = reader.option("includeHeaders", "true")
    return _cut_down(
        reader.load(), source.topics, session, headers, bucket_values(buckets, shuffle_partitions)
    )


def _cut_down(
    records: DataFrame,
    topics: Sequence[str],
    session: SessionSettings,
    headers: Mapping[str, str],
    buckets: Sequence[int],
) -> DataFrame:
    if session.key == "key":
        key = F.col("key")
    elif "key" in headers:
        key = _header(headers["key"])
    else:
        key = F.get_json_object(F.col("value").cast("string"), session.key).cast("binary")
    topic_index = F.lit(0)
    for number, topic in enumerate(topics[1:], 1):
        topic_index = F.when(F.col("topic") == topic, number).otherwise(topic_index)
    columns = {
        "source": F.shiftleft(topic_index, _PARTITION_BITS).bitwiseOR(F.col("partition")).cast("int"),
        "offset": F.col("offset"),
        "ts": F.unix_millis(F.col("timestamp")),
        "key": key,
        "value": F.col("value"),
    }
    columns |= {name: _header(header) for name, header in headers.items() if name != "key"}
    frame = records.select(*[column.alias(name) for name, column in columns.items()])
    index = F.pmod(F.hash(F.coalesce(F.col("key"), F.lit(b""))), len(buckets))
    return frame.select(F.element_at(F.array(*map(F.lit, buckets)), index + 1).alias("bucket"), *columns)


def _header(name: str) -> Column:
    """The last header of that name, its bytes; NULL where there is none."""
    values = F.transform(F.filter(F.col("headers"), lambda h: h["key"] == name), lambda h: h["value"])
    return F.try_element_at(values, F.lit(-1))
