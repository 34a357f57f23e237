"""A sink on a real outbox without Spark: batches are given as the rows that executors would return."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import orjson
import psycopg
import pyarrow as pa
from psycopg.rows import TupleRow

from db.lanes import lane_hash
from db.settings import JobSettings
from spark_job import OutputEvent, ledger, rows, writer
from spark_job.continuity import BatchRange
from spark_job.kafka_input import InputTopics
from spark_job.ledger import Generation
from spark_job.offsets import Offsets, TopicPartition
from spark_job.outputs import encode
from spark_job.pgcopy import int8s, nullable
from spark_job.sink import Committed, Sink

TOPIC_ID = "dG9waWMgaWQgZm9yIHRlc3Q"
P0, P1 = TopicPartition(TOPIC_ID, 0), TopicPartition(TOPIC_ID, 1)
Row = dict[str, Any]

_ARROW = {
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in rows.COLUMNS])


def session(key: str, start: int, end: int, outputs: Sequence[OutputEvent], source: int = 0) -> Row:
    """A closed session's row."""
    encoded = encode(outputs, 1 << 20)
    return {
        "kind": rows.SESSION,
        "source": source,
        "session_key": key,
        "first_offset": start,
        "last_offset": end,
        "closing_offset": end,
        "started_ms": 1_000,
        "ended_ms": 2_000,
        "events": end - start + 1,
        "lane_hash": lane_hash(key.encode()),
        "outputs": encoded.events,
        "topics": encoded.topics,
        "values": encoded.values,
        "keys": encoded.keys,
        "headers": encoded.headers,
        "partitions": encoded.partitions,
        "timestamps": encoded.timestamps,
    }


def letter(
    key: str | None, first: int, closing: int, reason: str, values: Sequence[bytes | None] = (b"x",)
) -> Row:
    """A dead letter's row with `values` kept from offset `first` on."""
    offsets = range(first, first + len(values))
    return {
        "kind": rows.LETTER,
        "source": 0,
        "session_key": key,
        "first_offset": first,
        "last_offset": offsets[-1],
        "closing_offset": closing,
        "events": len(values),
        "kept": len(values),
        "values": b"".join(nullable(value) for value in values),
        "partitions": int8s(offsets),
        "timestamps": int8s(1_000 + offset for offset in offsets),
        "reason": reason,
        "detail": f"test {reason}",
    }


def summary(bucket: int, oldest: dict[int, int], events: int = 0) -> Row:
    """A bucket's summary row."""
    detail = {
        "open_sessions": len(oldest),
        "open_events": len(oldest),
        "open_bytes": 10,
        "state_bytes": 20,
        "oldest": sorted(oldest.items()),
        "counts": {"events": events, "duplicates": 0},
        "seconds": {},
    }
    return {"kind": rows.SUMMARY, "bucket": bucket, "detail": orjson.dumps(detail).decode()}


class World:
    """One generation, one run, and the offset log that Spark would have."""

    def __init__(
        self, connection: psycopg.Connection[TupleRow], high_water: Offsets | None = None, revision: int = 0
    ) -> None:
        self.connection = connection
        self.run_id: UUID = uuid4()
        self.planned: dict[int, BatchRange] = {}
        start = Offsets({P0: 0, P1: 0})
        newest = ledger.newest_generation(connection)
        number = newest.number + 1 if newest else 1
        self.generation = Generation(
            number,
            uuid4().hex,
            start,
            high_water or start,
            {TOPIC_ID: "input"},
            "first",
            "skip",
            revision,
            {},
            "f",
        )
        with connection.transaction():
            writer.take_over(connection, self.run_id, JobSettings(), force=True)
            ledger.insert_first_lane_epoch(connection, 4)
            ledger.insert_generation(connection, self.generation, self.run_id)
        self.sink = self.new_sink()

    def new_sink(
        self, connection: psycopg.Connection[TupleRow] | None = None, max_row_bytes: int = 1 << 20
    ) -> Sink:
        """A sink of this run, as after a restart."""
        return Sink(
            connection or self.connection,
            run_id=self.run_id,
            generation=self.generation,
            transform_fingerprint="transform",
            max_row_bytes=max_row_bytes,
            input_topics=lambda: InputTopics({"input": TOPIC_ID}, {"input": [0, 1]}),
        )

    def plan(self, spark_batch: int, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Write the offset log: (offset of partition 0, of partition 1)."""
        as_offsets = [Offsets(zip((P0, P1), pair, strict=True)) for pair in (start, end)]
        self.planned[spark_batch] = BatchRange(*as_offsets)

    def write(self, spark_batch: int, *found: Row, sink: Sink | None = None) -> Committed | None:
        """Let the sink write a batch."""
        return (sink or self.sink).write(
            pa.Table.from_pylist(list(found), SCHEMA), spark_batch, self.planned[spark_batch]
        )
