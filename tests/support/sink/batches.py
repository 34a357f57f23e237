"""A sink on a real outbox without Spark: batches are given as the rows that tasks would return."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import orjson
import psycopg
import pyarrow as pa
from psycopg.rows import TupleRow

from contract.session_keys import lane_hash
from db.statements import queries
from service.settings import JobSettings
from spark_job import OutputEvent
from spark_job.assembly import rows
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger import generations, ownership, position, runs
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.position import InputPosition
from spark_job.ledger.rules_lineage import Lineage
from spark_job.ledger.runs import Begun
from spark_job.outputs.encoding import encode
from spark_job.outputs.pgcopy import int8s, nullable
from spark_job.sessions.state.digest_form import DIGEST_FORM
from spark_job.sink.commit import CommittedBatch, Sink
from spark_job.sink.computed_batch import BatchRange, ResultReader
from tests.support.outbox.closed_sessions import closed, fields

_LEDGER = queries("spark_job", "ledger")

TOPIC_ID = "dG9waWMgaWQgZm9yIHRlc3Q"
P0, P1 = TopicPartition(TOPIC_ID, 0), TopicPartition(TOPIC_ID, 1)
Row = dict[str, Any]


def session(key: str, start: int, end: int, outputs: Sequence[OutputEvent], source: int = 0) -> Row:
    """A closed session's row."""
    encoded = encode(outputs, 1 << 20)
    return {
        "kind": rows.SESSION,
        "source": source,
        "session_key": key,
        "first_offset": start,
        "last_offset": end,
        "lane_hash": lane_hash(key.encode()),
        "outputs": encoded.events,
        "value_bytes": encoded.value_bytes,
        "fields": fields(closed(key, start, end), TopicPartition(TOPIC_ID, source), encoded),
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
        "offsets": int8s(offsets),
        "times": int8s(1_000 + offset for offset in offsets),
        "reason": reason,
        "detail": f"test {reason}",
    }


def still_open(source: int, *starts: int, events: int = 0, tombstones: bytes = b"") -> Row:
    """What a task says of a partition that had records: sessions that began at `starts` are open, of two events and ten bytes each."""
    detail: dict[str, Any] = {
        "safe": min(starts, default=None),
        "sessions": len(starts),
        "events": 2 * len(starts),
        "bytes": 10 * len(starts),
        "digest": f"{DIGEST_FORM}digest of {sorted(starts)}" if starts or tombstones else "",
        "counts": {"events": events, "duplicates": 0},
        "seconds": {},
        "refused": [],
        "rebuilt": None,
        "problem": "",
    }
    return {
        "kind": rows.PARTITION,
        "source": source,
        "detail": orjson.dumps(detail).decode(),
        "tombstones": tombstones or None,
    }


class SinkRun:
    """One generation, one run, and what Spark would say of each batch's range."""

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        start: Offsets | None = None,
        revision: int = 0,
        reason: str = "first",
        opened: OpenPartitions | None = None,
        cut: Offsets | None = None,
        topic: tuple[str, str] = ("input", TOPIC_ID),
        assembly: Mapping[str, Any] | None = None,
    ) -> None:
        """`topic`: (name, id) of the input, which has two partitions."""
        name, topic_id = topic
        self.partitions = TopicPartition(topic_id, 0), TopicPartition(topic_id, 1)
        self.connection = connection
        self.run_id: UUID = uuid4()
        self.planned: dict[int, BatchRange] = {}
        newest = generations.newest_generation(connection)
        self.generation = Generation(
            number=newest.number + 1 if newest else 1,
            start=start or Offsets(dict.fromkeys(self.partitions, 0)),
            open=opened or OpenPartitions(),
            lineage=Lineage(),
            topics={topic_id: name},
            reason=reason,
            policy="reissue" if reason == "savepoint" else "skip",
            revision=revision,
            assembly=assembly or {},
            savepoint="monday" if reason == "savepoint" else None,
            cut=cut or Offsets(),
        )
        with connection.transaction():
            ownership.take_over(connection, self.run_id, JobSettings(), force=True)
            connection.execute(_LEDGER["first_lane_epoch"], {"lanes": 4})
            generations.insert(connection, self.generation, self.run_id)
            self._record_run()
        self.topics = InputTopics({name: topic_id}, {name: [0, 1]})
        self.sink = self.new_sink()

    def _record_run(self) -> None:
        of = self.generation
        restored = {"first": "fresh", "savepoint": "savepoint"}.get(of.reason, "new_generation")
        begun = Begun(of, restored, of.start, of.open, "a test", 500_000)
        runs.record(self.connection, self.run_id, begun, attempt=1, transform_fingerprint="transform")

    def new_sink(
        self,
        connection: psycopg.Connection[TupleRow] | None = None,
        max_row_bytes: int = 1 << 20,
        at: InputPosition | None = None,
    ) -> Sink:
        """A sink of this run that continues `at` a position, by default where the outbox is."""
        connection = connection or self.connection
        at = at or position.read(connection)
        assert at is not None
        return Sink(
            connection,
            at,
            run_id=self.run_id,
            transform_fingerprint="transform",
            max_row_bytes=max_row_bytes,
        )

    def plan(self, spark_batch: int, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Let a batch have this range: (offset of partition 0, of partition 1)."""
        as_offsets = [Offsets(zip(self.partitions, pair, strict=True)) for pair in (start, end)]
        self.planned[spark_batch] = BatchRange(*as_offsets)

    def write(
        self,
        spark_batch: int,
        *found: Row,
        sink: Sink | None = None,
        input_topics: Callable[[], InputTopics] | None = None,
    ) -> CommittedBatch | None:
        """Let the sink write a batch. A partition with sessions or letters tells what is open, by default nothing, as tasks do."""
        told = {row["source"] for row in found if row["kind"] == rows.PARTITION}
        others = {row["source"] for row in found} - told
        table = pa.Table.from_pylist(
            [*found, *(still_open(source) for source in sorted(others))], rows.SCHEMA
        )
        writer = sink or self.sink
        reader = ResultReader(writer.position, input_topics or (lambda: self.topics))
        computed = reader.read(table, self.planned[spark_batch])
        return None if computed is None else writer.commit(computed, spark_batch)
