"""The one commit of the engine: each micro-batch becomes one Postgres transaction (design §3.3)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pyarrow as pa
import structlog
from psycopg.rows import TupleRow

from db.fault_points import reach
from db.monitoring.harmless import harmless
from db.statements import statement
from spark_job import batch, ledger, metrics, storing, writer
from spark_job.batch import BatchResult, Letter, OutputRow
from spark_job.continuity import BatchRange, is_committed
from spark_job.dead_letters import covered
from spark_job.kafka_input import InputTopics
from spark_job.ledger import Generation

log = structlog.get_logger()

_PARTITIONS_AHEAD = 30_000  # batches for which table partitions exist already
_ENSURE_EVERY = 10_000


@dataclass(frozen=True)
class Committed:
    """What a batch did to the outbox."""

    batch_id: int  # of its last part
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
        transform_fingerprint: str,
        max_row_bytes: int,
        input_topics: Callable[[], InputTopics],
    ) -> None:
        """`connection` must be in autocommit mode, so that a transaction here is one there."""
        self._connection = connection
        self._run_id = run_id
        self._generation = generation
        self._transform_fingerprint = transform_fingerprint
        self._max_row_bytes = max_row_bytes
        self._input_topics = input_topics
        self._ensured_to = 0
        self._horizon: covered.Horizon | None = None

    def write(self, table: pa.Table, spark_batch: int, planned: BatchRange) -> Committed | None:
        """Store what Spark computed for `spark_batch`, the input in `planned`; None when the outbox has it already.

        Raises FencedError when another run owns the outbox, ContinuityError when checkpoint, ledger and input do not fit together. Both
        leave the outbox as it was. Raises UnavailableError when the connection was lost, so that it is unknown whether the batch is there.
        """
        began = time.perf_counter()
        # Asked anew for each batch: partitions may have been added, and the offsets must still be those of the same topics.
        topics = self._input_topics()
        result = batch.read(table, topics.places())
        # What closes below the high water, an earlier generation has dealt with.
        sessions = batch.above_high_water(result.sessions, self._generation.high_water)
        letters = [letter for letter in result.letters if not self._is_settled(letter)]
        skipped = len(result.sessions) - len(sessions) + len(result.letters) - len(letters)
        parts = batch.parts(sessions, self._max_row_bytes)
        self._ensure_partitions(len(parts))
        if self._horizon is None:
            self._horizon = covered.Horizon.read(self._connection, self._generation)
        prepared = time.perf_counter()
        reach("sink.before_transaction")
        with writer.certain(self._connection):
            # 1. The writer lock: from here on no other run can write, and a zombie stops.
            writer.lock_and_check(self._connection, self._run_id)
            reach("sink.after_lock")
            # 2. Continuity: the ledger ends where this batch starts, or has it already.
            newest = ledger.newest_stream_batch(self._connection, self._generation.number)
            if is_committed(self._generation, newest, spark_batch, planned):
                self._compare_recomputed(spark_batch, parts)
                reach("sink.after_comparison")
                return None
            reach("sink.after_continuity")
            first_id, lanes = ledger.next_batch(self._connection)
            # 3. One row for each key and part.
            for part, rows in enumerate(parts):
                storing.copy_rows(self._connection, rows, first_id + part, lanes, self._generation.revision)
            reach("sink.after_copy")
            # 4. Dead letters, those that the rows resolve, and what is still open.
            resolved = covered.resolve(
                self._connection, self._horizon.keys(sessions), first_id, first_id + len(parts) - 1
            )
            written = storing.insert_letters(
                self._connection, letters, self._generation, topics.names, first_id
            )
            reach("sink.after_dead_letters")
            storing.upsert_buckets(self._connection, result.summaries, self._generation.number, first_id)
            reach("sink.after_buckets")
            # 5. The ledger row last: the publisher follows it.
            entry = storing.stream_entry(
                self._connection,
                self._generation,
                spark_batch,
                planned,
                result,
                run_id=self._run_id,
                transform_fingerprint=self._transform_fingerprint,
                dead_letters=sum(written.values()),
                skipped=skipped,
            )
            storing.insert_ledger_rows(self._connection, entry, parts, first_id)
            reach("sink.after_ledger")
        reach("sink.after_commit")
        committed = Committed(
            batch_id=first_id + len(parts) - 1,
            sessions=len(sessions),
            output_events=sum(session.outputs.events for session in sessions),
            dead_letters=sum(written.values()),
            skipped=skipped,
        )
        commit_s = time.perf_counter() - prepared
        _count(committed, parts, result, written, resolved, prepare_s=prepared - began, commit_s=commit_s)
        if resolved:
            log.info("dead_letters_resolved", batch=committed.batch_id, letters=resolved)
        _log_commit(
            committed,
            spark_batch,
            result,
            prepare_s=prepared - began,
            commit_s=commit_s,
        )
        return committed

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
        metrics.recomputed(sum(len(rows) for rows in parts), same=differing is None)
        log.warning("batch_committed_before", spark_batch=spark_batch, same_content=differing is None)

    def _is_settled(self, letter: Letter) -> bool:
        return letter.reason == "no_start" and letter.closing_offset < self._generation.high_water.at(
            letter.where
        )

    def _ensure_partitions(self, parts: int) -> None:
        """Make table partitions ahead, outside the batch's transaction, so that their locks are held for a moment only."""
        next_id, _ = ledger.next_batch(self._connection)
        if next_id + parts + _ENSURE_EVERY > self._ensured_to:
            self._ensured_to = next_id + parts + _PARTITIONS_AHEAD
            ledger.ensure_partitions(self._connection, next_id, self._ensured_to)


@harmless("metrics of a batch")
def _count(
    committed: Committed,
    parts: Sequence[Sequence[OutputRow]],
    result: BatchResult,
    letters: Mapping[str, int],
    resolved: int,
    *,
    prepare_s: float,
    commit_s: float,
) -> None:
    metrics.committed(
        events=result.counts.get("events", 0),
        sessions=committed.sessions,
        output_events=committed.output_events,
        output_bytes=sum(row.size for rows in parts for row in rows),
        dead_letters=letters,
        resolved=resolved,
        duplicates=result.counts.get("duplicates", 0),
        skipped=committed.skipped,
        seconds={
            "assemble": result.seconds.get("assemble_s", 0.0),
            "transform": result.seconds.get("transform_s", 0.0),
            "prepare": prepare_s,
            "commit": commit_s,
        },
    )


def _log_commit(
    committed: Committed, spark_batch: int, result: BatchResult, *, prepare_s: float, commit_s: float
) -> None:
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
        prepare_s=round(prepare_s, 3),
        commit_s=round(commit_s, 3),
    )
