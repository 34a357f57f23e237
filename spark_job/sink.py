"""The one commit of the engine: each micro-batch becomes one Postgres transaction (design §3.3)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pyarrow as pa
import structlog
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from db.errors import ContinuityError
from db.statements import statement
from spark_job import batch, ledger, pgcopy
from spark_job.batch import BatchResult, Letter, OutputRow
from spark_job.ledger import Generation
from spark_job.offsets import Offsets, TopicPartition
from spark_job.writer import lock_and_check

log = structlog.get_logger()

_PARTITIONS_AHEAD = 30_000  # batches for which table partitions exist already
_ENSURE_EVERY = 10_000


@dataclass(frozen=True)
class BatchRange:
    """Start (inclusive) and end (exclusive) of a Spark batch, out of the checkpoint's offset log."""

    start: Offsets
    end: Offsets


@dataclass(frozen=True)
class Committed:
    """What a batch did to the outbox."""

    batch_id: int
    sessions: int
    output_events: int
    dead_letters: int
    skipped: int


class Sink:
    """Writes the batches of one generation for one run. `write` is called by Spark's stream thread only."""

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        *,
        run_id: UUID,
        generation: Generation,
        places: Mapping[int, TopicPartition],
        topic_names: Mapping[str, str],
        transform_fingerprint: str,
        max_row_bytes: int,
        batch_range: Callable[[int], BatchRange],
        check_topics: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._run_id = run_id
        self._generation = generation
        self._places = places
        self._topic_names = topic_names
        self._transform_fingerprint = transform_fingerprint
        self._max_row_bytes = max_row_bytes
        self._batch_range = batch_range
        self._check_topics = check_topics
        self._ensured_to = 0
        self.committed = threading.Event()
        """Set after each commit, for whoever waits for progress."""

    def write(self, table: pa.Table, spark_batch: int) -> Committed | None:
        """Store what Spark computed for `spark_batch`; None when the outbox has it already.

        Raises FencedError when another run owns the outbox, ContinuityError when checkpoint and ledger do not fit. Both leave the outbox as
        it was.
        """
        began = time.perf_counter()
        result = batch.read(table, self._places)
        planned = self._batch_range(spark_batch)
        high_water = self._generation.high_water
        kept = batch.above_high_water(result.sessions, high_water)
        parts = batch.parts(kept, self._max_row_bytes)
        prepared = time.perf_counter()
        self._ensure_partitions()
        with self._connection.transaction():
            # 1. The writer lock: from here on no other run can write, and a zombie stops.
            lock_and_check(self._connection, self._run_id)
            # 2. Continuity: the ledger ends where this batch starts, or has it already.
            if self._is_committed(spark_batch, planned):
                self._compare_recomputed(spark_batch, parts)
                return None
            # 3. The input is still the one whose offsets these are.
            self._check_topics()
            letters = [letter for letter in result.letters if not self._is_settled(letter)]
            # 4.-6. Rows, letters, bucket summaries; the ledger row last.
            committed = self._insert(
                spark_batch, planned, result, parts, letters, skipped=len(result.sessions) - len(kept)
            )
        self.committed.set()
        log.info(
            "batch_committed",
            batch=committed.batch_id,
            spark_batch=spark_batch,
            events=result.counts.get("events", 0),
            sessions=committed.sessions,
            outputs=committed.output_events,
            dead_letters=committed.dead_letters,
            skipped=committed.skipped,
            assemble_s=round(result.seconds.get("assemble_s", 0.0), 3),
            transform_s=round(result.seconds.get("transform_s", 0.0), 3),
            prepare_s=round(prepared - began, 3),
            commit_s=round(time.perf_counter() - prepared, 3),
        )
        return committed

    def _is_committed(self, spark_batch: int, planned: BatchRange) -> bool:
        newest = ledger.newest_stream_batch(self._connection, self._generation.number)
        where = f"generation {self._generation.number}, Spark batch {spark_batch}"
        if newest is None:
            if spark_batch == 0 and planned.start.same_as(self._generation.start):
                return False
            raise ContinuityError(
                f"{where}: the ledger has no batch of this generation yet, so the first one must be 0 and start at "
                f"{self._generation.start.to_json()}, not {planned.start.to_json()}. The database was restored to an older state, or the "
                "checkpoint directory is another one. Nothing was written."
            )
        if newest.spark_batch == spark_batch - 1:
            if newest.end.same_as(planned.start):
                return False
            raise ContinuityError(
                f"{where} starts where batch {newest.batch_id} did not end: {planned.start.differences(newest.end)}. "
                "Checkpoint and ledger belong to different histories. Nothing was written."
            )
        if newest.spark_batch == spark_batch:
            if newest.start.same_as(planned.start) and newest.end.same_as(planned.end):
                return True
            raise ContinuityError(
                f"{where} was committed as batch {newest.batch_id} with another range: "
                f"start {planned.start.differences(newest.start) or 'same'}, end {planned.end.differences(newest.end) or 'same'}. "
                "The checkpoint was rolled back or copied. Nothing was written."
            )
        raise ContinuityError(
            f"{where}: the ledger's newest is Spark batch {newest.spark_batch} (batch {newest.batch_id}). The "
            + (
                "checkpoint was rolled back"
                if newest.spark_batch > spark_batch
                else "database was restored to an older state"
            )
            + ". Nothing was written."
        )

    def _compare_recomputed(self, spark_batch: int, parts: Sequence[Sequence[OutputRow]]) -> None:
        """First commit wins; that Spark computed something else the second time is recorded, not acted on."""
        stored = ledger.committed_hashes(self._connection, self._generation.number, spark_batch)
        computed = [batch.content_hash(rows) for rows in parts]
        differing = next((new for old, new in zip(stored, computed, strict=False) if old != new), None)
        if differing is None and len(stored) != len(computed):
            differing = computed[-1]
        self._connection.execute(
            statement("spark_job", "record_recomputed"),
            {"generation": self._generation.number, "spark_batch": spark_batch, "recomputed_hash": differing},
        )
        log.warning("batch_committed_before", spark_batch=spark_batch, same_content=differing is None)

    def _is_settled(self, letter: Letter) -> bool:
        return letter.reason == "no_start" and letter.closing_offset < self._generation.high_water.at(
            letter.where
        )

    def _insert(
        self,
        spark_batch: int,
        planned: BatchRange,
        result: BatchResult,
        parts: Sequence[Sequence[OutputRow]],
        letters: Sequence[Letter],
        skipped: int,
    ) -> Committed:
        first_id, lanes = ledger.next_batch(self._connection)
        for part, rows in enumerate(parts):
            self._copy_rows(rows, first_id + part, lanes)
        written = self._insert_letters(letters, first_id)
        self._upsert_buckets(result, first_id)
        oldest = ledger.oldest_open(self._connection, self._generation.number)
        done = planned.end.max(self._generation.high_water)
        safe = Offsets({where: oldest.get(where, end) for where, end in planned.end.items()})
        for part, rows in enumerate(parts):
            self._connection.execute(
                statement("spark_job", "insert_batch"),
                {
                    "batch_id": first_id + part,
                    "generation": self._generation.number,
                    "spark_batch": spark_batch,
                    "part": part,
                    "run_id": self._run_id,
                    "start_offsets": Jsonb(planned.start.to_json()),
                    "end_offsets": Jsonb(planned.end.to_json()),
                    "done_offsets": Jsonb(done.to_json()),
                    "safe_offsets": Jsonb(safe.to_json()),
                    "input_events": result.counts.get("events", 0) if part == 0 else 0,
                    "sessions": sum(row.sessions for row in rows),
                    "output_events": sum(row.outputs for row in rows),
                    "dead_letters": written if part == 0 else 0,
                    "duplicate_events": result.counts.get("duplicates", 0) if part == 0 else 0,
                    "skipped_sessions": skipped if part == 0 else 0,
                    "content_hash": batch.content_hash(rows),
                    "transform_fingerprint": self._transform_fingerprint,
                },
            )
        self._connection.execute(
            statement("spark_job", "notify_batch"), {"batch_id": first_id + len(parts) - 1}
        )
        sessions = sum(row.sessions for rows in parts for row in rows)
        outputs = sum(row.outputs for rows in parts for row in rows)
        return Committed(first_id + len(parts) - 1, sessions, outputs, written, skipped)

    def _copy_rows(self, rows: Sequence[OutputRow], batch_id: int, lanes: int) -> None:
        if not rows:
            return
        revision = self._generation.revision
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement("spark_job", "copy_session_output")) as copy,
        ):
            copy.write(pgcopy.HEADER)
            for row in rows:
                copy.write(row.copy(batch_id, lanes, revision))
            copy.write(pgcopy.TRAILER)

    def _insert_letters(self, letters: Sequence[Letter], batch_id: int) -> int:
        if not letters:
            return 0
        self._connection.execute(statement("spark_job", "create_letter_stage"))
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement("spark_job", "copy_letter_stage")) as copy,
        ):
            copy.write(pgcopy.HEADER)
            for letter in letters:
                copy.write(self._letter_row(letter))
            copy.write(pgcopy.TRAILER)
        return self._connection.execute(
            statement("spark_job", "insert_letters"),
            {
                "revision": self._generation.revision,
                "generation": self._generation.number,
                "batch_id": batch_id,
            },
        ).rowcount

    def _letter_row(self, letter: Letter) -> bytes:
        below = letter.closing_offset < self._generation.high_water.at(letter.where)
        return pgcopy.count(14) + b"".join(
            [
                pgcopy.data(letter.where.topic_id.encode()),
                pgcopy.data(self._topic_names[letter.where.topic_id].encode()),
                pgcopy.int4(letter.where.partition),
                pgcopy.int8(letter.first_offset),
                pgcopy.int8(letter.last_offset),
                pgcopy.int8(letter.closing_offset),
                pgcopy.data(letter.reason.encode()),
                pgcopy.nullable(None if letter.key is None else letter.key.encode()),
                pgcopy.data(letter.detail.encode()),
                pgcopy.int4(letter.event_count),
                pgcopy.array(pgcopy.INT8, letter.kept, letter.offsets),
                pgcopy.array(pgcopy.INT8, letter.kept, letter.times_ms),
                pgcopy.array(pgcopy.BYTEA, letter.kept, letter.values),
                pgcopy.data(b"\x01" if below else b"\x00"),
            ]
        )

    def _upsert_buckets(self, result: BatchResult, batch_id: int) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                statement("spark_job", "upsert_bucket"),
                [
                    {
                        "generation": self._generation.number,
                        "bucket": summary.bucket,
                        "batch_id": batch_id,
                        "open_sessions": summary.open_sessions,
                        "open_events": summary.open_events,
                        "open_bytes": summary.open_bytes,
                        "state_bytes": summary.state_bytes,
                        "oldest_open": Jsonb(summary.oldest.to_json()),
                    }
                    for summary in result.summaries
                ],
            )

    def _ensure_partitions(self) -> None:
        """Make table partitions ahead, outside the batch's transaction, so that their locks are held for a moment only."""
        next_id, _ = ledger.next_batch(self._connection)
        if next_id + _ENSURE_EVERY > self._ensured_to:
            self._ensured_to = next_id + _PARTITIONS_AHEAD
            ledger.ensure_partitions(self._connection, next_id, self._ensured_to)
