"""How a task gets its records: from Spark's Kafka source, or from Kafka itself where Spark gives a record another time, or none.

Spark makes a timestamp of Kafka's number and takes it for a time of the Julian calendar: before 1900 it moves it, by as much as the JVM's
time zone says, two numbers to one at times; one that does not fit into 64 bits as microseconds it refuses (KafkaRecordToRowConverter).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_job.assembly.slices import Slice, TaskSettings
from spark_job.input.columns import RecordColumns
from spark_job.input.reading import committed_records

# Spark moves no time from 1900 on, and none by more than a few days to behind this one.
_MOVED_BELOW_MS = -2_177_452_800_000  # 1901-01-01


class TimeMovedError(Exception):
    """Spark's Kafka source may have given a record another time than Kafka has."""


class RecordReader(Protocol):
    """From what Spark gives a task to the columns of `input.source.read_records`."""

    def read(
        self, given: Iterable[pa.RecordBatch], slices: Mapping[int, Slice], settings: TaskSettings
    ) -> Iterator[pa.RecordBatch]:
        """Yield each partition's records together and in offset order. `slices`: by source number."""


@dataclass(frozen=True)
class SparkRecords:
    """Spark has read them."""

    def read(
        self, given: Iterable[pa.RecordBatch], slices: Mapping[int, Slice], settings: TaskSettings
    ) -> Iterator[pa.RecordBatch]:
        """Pass them on. Raises TimeMovedError."""
        for batch in given:
            earliest = pc.min(batch.column("ts")).as_py()
            if earliest is not None and earliest < _MOVED_BELOW_MS:
                raise TimeMovedError(f"a record has the time {earliest} ms, or another one before 1901")
            yield batch


@dataclass(frozen=True)
class DirectReader:
    """Reads whole slices from Kafka."""

    columns: RecordColumns

    def read(
        self, given: Iterable[pa.RecordBatch], slices: Mapping[int, Slice], settings: TaskSettings
    ) -> Iterator[pa.RecordBatch]:
        """Read the slices whose places among the source numbers are given. Raises RecordsGoneError, NoAnswerError."""
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
