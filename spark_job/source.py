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
    """Return the streaming frame: bucket, source, offset, ts, key, value, raw, raw_key and the header columns that are set."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", ",".join(source.topics))
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", max_events)
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
    )
    for name, value in kafka.java_options.items():
        reader = reader.option(f"kafka.{name}", value)
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
    value, record_key = F.col("value").cast("string"), F.col("key").cast("string")
    value_valid, key_valid = F.is_valid_utf8(value), F.is_valid_utf8(record_key)
    if session.key == "key":
        key: Column = F.when(key_valid, record_key)
    elif "key" in headers:
        key = _header(headers["key"])
    else:
        key = F.get_json_object(value, session.key)
    topic_index = F.lit(0)
    for index, topic in enumerate(topics[1:], 1):
        topic_index = F.when(F.col("topic") == topic, index).otherwise(topic_index)
    columns = {
        "source": F.shiftleft(topic_index, _PARTITION_BITS).bitwiseOR(F.col("partition")).cast("int"),
        "offset": F.col("offset"),
        "ts": F.unix_millis(F.col("timestamp")),
        "key": key,
        "value": F.when(value_valid, value),
        "raw": F.when(~value_valid, F.col("value")),
        "raw_key": F.when(~key_valid, F.col("key")),
    }
    columns |= {name: _header(header) for name, header in headers.items() if name != "key"}
    bucket = F.element_at(
        F.array(*map(F.lit, buckets)), F.pmod(F.hash(F.coalesce(F.col("key"), F.lit(""))), len(buckets)) + 1
    )
    frame = records.select(*[column.alias(name) for name, column in columns.items()])
    return frame.select(bucket.cast("int").alias("bucket"), *columns)


def _header(name: str) -> Column:
    """The last header of that name as text; NULL where there is none or it is not UTF-8."""
    values = F.transform(
        F.filter(F.col("headers"), lambda h: h["key"] == name), lambda h: h["value"].cast("string")
    )
    last = F.try_element_at(values, F.lit(-1))
    return F.when(F.is_valid_utf8(last), last)
