"""How a task reads its records: from Spark's Kafka source, or from Kafka itself if Spark would change or refuse a record's time.

Spark treats Kafka's number as a time of the Julian calendar. It moves times before 1900, by an amount that depends on the JVM's time zone,
and sometimes moves two of them to the same time. It refuses a time that does not fit into 64 bits as microseconds
(KafkaRecordToRowConverter).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_job.assembly.slices import Slice, TaskSettings
from spark_job.input.columns import RecordColumns
from spark_job.input.reading import committed_records

# Spark moves only times before 1900, and by a few days at most: no moved time lies past this limit.
_MOVED_BELOW_MS = -2_177_452_800_000  # 1901-01-01


class TimeMovedError(Exception):
    """Spark's Kafka source may have given a record another time than Kafka has."""


class RecordReader(Protocol):
    """Turns what Spark gives a task into the columns of `input.source.read_records`."""

    def read(
        self, given: Iterable[pa.RecordBatch], slices: Mapping[int, Slice], settings: TaskSettings
    ) -> Iterator[pa.RecordBatch]:
        """Yield each partition's records together and in offset order. `slices`: by source number."""


@dataclass(frozen=True)
class SparkRecords:
    """Records that Spark has read."""

    def read(
        self, given: Iterable[pa.RecordBatch], slices: Mapping[int, Slice], settings: TaskSettings
    ) -> Iterator[pa.RecordBatch]:
        """Pass them on. Raises TimeMovedError."""
        for batch in given:
            earliest = pc.min(batch.column("ts")).as_py()
            if earliest is not None and earliest < _MOVED_BELOW_MS:
                raise TimeMovedError(
                    f"a record's time is before 1901: {earliest} ms by Spark, which may have changed it"
                )
            yield batch


@dataclass(frozen=True)
class DirectReader:
    """Reads whole slices from Kafka."""

    columns: RecordColumns

    def read(
        self, given: Iterable[pa.RecordBatch], slices: Mapping[int, Slice], settings: TaskSettings
    ) -> Iterator[pa.RecordBatch]:
        """Read slices from Kafka; `given` has their indexes in the sorted source numbers of `slices`.

        Raises as `committed_records`.
        """
        numbers = sorted(slices)
        for place in (place for batch in given for place in batch.column(0).to_pylist()):
            source, of = numbers[place], slices[numbers[place]]
            for messages in committed_records(
                settings.kafka, of.topic, of.partition, of.start, of.end, settings.kafka_timeout_s
            ):
                table = self.columns.table(messages)
                yield from table.append_column(
                    "source", pa.array([source] * len(table), pa.int32())
                ).to_batches()
