"""The one commit of the engine: each micro-batch becomes one Postgres transaction.

1. The writer lock: from here on no other run can write, and a zombie stops.
2. Continuity: the ledger must end where this batch starts. A reissue leaves out erased sessions.
3. One row for each session key and part, by binary COPY.
4. Resolve the dead letters that the rows cover, then insert the new ones.
5. The ledger row last: the publisher follows it.

A batch that an earlier attempt committed is never computed again: each start reads the ledger's end (`recovery/start.py`), and Spark begins
there. After an unknown COMMIT the attempt fails, and the next start reads the ledger again.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import psycopg
import structlog

from db.connection import Connection, confirmed_transaction
from service.errors import ContinuityError, MovedError
from service.lifecycle.fault_points import reach
from service.observability import tracing
from service.observability.best_effort import best_effort
from spark_job.input.offsets import Offsets
from spark_job.ledger import ownership
from spark_job.ledger.position import InputPosition
from spark_job.monitoring import metrics
from spark_job.sink import batch_result, covered_letters, ledger_rows
from spark_job.sink.batch_result import BatchResult, OutputRow
from spark_job.sink.computed_batch import BatchRange, ComputedBatch
from spark_job.sink.copy_rows import copy_rows, insert_letters
from spark_job.sink.erased import ErasedKeys
from spark_job.sink.ledger_rows import LedgerEntry, LedgerState

log = structlog.get_logger()

_PARTITIONS_AHEAD = 30_000  # batches for which table partitions are made ahead
_ENSURE_EVERY = 10_000
_CANCEL_S = 5.0


@dataclass(frozen=True)
class CommittedBatch:
    """What a batch added to the outbox."""

    batch_id: int
    """Of its last part."""
    sessions: int
    output_events: int
    dead_letters: int


class Sink:
    """Writes the batches of one run, in order. The thread that commits owns all of it, except `cancel`."""

    def __init__(
        self,
        connection: Connection,
        position: InputPosition,
        *,
        run_id: UUID,
        transform_fingerprint: str,
        max_row_bytes: int,
    ) -> None:
        """`connection` must be in autocommit mode, so that each transaction here is one in Postgres."""
        self.position = position
        """The outbox's position: what the start read, and what was committed since."""
        self._connection = connection
        self._run_id = run_id
        self._transform_fingerprint = transform_fingerprint
        self._max_row_bytes = max_row_bytes
        self._ensured_to = 0
        self._horizon = covered_letters.Horizon.read(connection, position)

    def commit(self, computed: ComputedBatch, spark_batch: int) -> CommittedBatch:
        """Store the batch, and return what it added.

        Raises FencedError when another run owns the outbox, MovedError or ContinuityError when the batch does not continue the ledger. All
        leave the outbox as it was. Raises UnavailableError or psycopg.Error when the connection was lost: then it is unknown whether the
        batch was committed.
        """
        began = time.perf_counter()
        planned, result, following = computed.planned, computed.result, computed.following
        generation = self.position.generation
        parts = batch_result.parts(result.sessions, self._max_row_bytes)
        self._ensure_partitions(len(parts))
        prepared = time.perf_counter()
        reach("sink.before_transaction")
        with confirmed_transaction(self._connection):
            ownership.lock(self._connection)
            reach("sink.after_lock")
            state = self._check(planned)
            reach("sink.after_continuity")
            if (erased := ErasedKeys.read(self._connection, self.position)) is not None:
                whole, result = result, erased.left_out(result)
                parts = batch_result.parts(result.sessions, self._max_row_bytes)
                _report_erased(whole, result)
            batches = copy_rows(self._connection, parts, state.next_batch, state.lanes, generation.revision)
            reach("sink.after_copy")
            resolved = covered_letters.resolve(self._connection, self._horizon.keys(result.sessions), batches)
            written = insert_letters(
                self._connection,
                result.letters,
                generation,
                computed.topics.names,
                batches[0],
                planned.start,
            )
            reach("sink.after_dead_letters")
            entry = LedgerEntry(
                "stream",
                generation.number,
                self._run_id,
                self._transform_fingerprint,
                spark_batch=spark_batch,
                start=Offsets({**self.position.end, **planned.start}),
                end=following.end,
                open=following.open,
                input_events=result.counts.get("events", 0),
                dead_letters=sum(written.values()),
                duplicate_events=result.counts.get("duplicates", 0),
            )
            ledger_rows.insert_rows(self._connection, entry, parts, batches, state.lanes)
            reach("sink.after_ledger")
        reach("sink.after_commit")
        self.position = replace(self.position, newest=replace(following, batch_id=batches[-1]))
        committed = CommittedBatch(
            batch_id=batches[-1],
            sessions=len(result.sessions),
            output_events=sum(session.outputs for session in result.sessions),
            dead_letters=sum(written.values()),
        )
        seconds = {"prepare": computed.read_s + prepared - began, "commit": time.perf_counter() - prepared}
        _count(committed, parts, result, written, resolved, seconds)
        _report(committed, spark_batch, result, resolved, seconds)
        if tracing.is_on():
            tracing.batch(
                committed.batch_id,
                sum(seconds.values()),
                {
                    "outbox.run": str(self._run_id),
                    "outbox.generation": generation.number,
                    "outbox.sessions": committed.sessions,
                    "outbox.outputs": committed.output_events,
                },
            )
        return committed

    def cancel(self) -> None:
        """Cancel the statement that is running, from another thread. If the server cannot be reached, do nothing."""
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=_CANCEL_S)

    def _check(self, planned: BatchRange) -> LedgerState:
        """Check that this run still owns the outbox, and that the batch continues the ledger; return the ledger's state."""
        state = ledger_rows.read_state(self._connection)
        if state.run_id != self._run_id and (error := ownership.disowned(self._connection, self._run_id)):
            raise error
        at = self.position
        if (state.generation, state.newest_stream) != (at.generation.number, at.batch_id):
            raise MovedError(
                f"the ledger ends with batch {state.newest_stream} of generation {state.generation}, this run has written batch "
                f"{at.batch_id} of generation {at.generation.number}: the database was restored or failed over to another state. "
                "Nothing was written."
            )
        gaps = [where for where, start in planned.start.items() if where in at.end and start != at.end[where]]
        if gaps:
            begins = Offsets({where: planned.start[where] for where in gaps})
            ends = Offsets({where: at.end[where] for where in gaps})
            raise ContinuityError(
                f"the batch does not begin where the ledger ends: {begins.differences(ends)}. Nothing was written."
            )
        return state

    def _ensure_partitions(self, parts: int) -> None:
        """Make table partitions ahead, outside the batch's transaction, so that their locks are held for a moment only."""
        next_id = (self.position.batch_id or 0) + 1
        if next_id + parts + _ENSURE_EVERY > self._ensured_to:
            next_id = ledger_rows.read_state(self._connection).next_batch
            self._ensured_to = next_id + parts + _PARTITIONS_AHEAD
            ledger_rows.ensure_partitions(self._connection, next_id, self._ensured_to)


def _report_erased(whole: BatchResult, left: BatchResult) -> None:
    sessions, letters = len(whole.sessions) - len(left.sessions), len(whole.letters) - len(left.letters)
    if sessions or letters:
        log.info("erased_left_out", sessions=sessions, letters=letters)


@best_effort("metrics of a batch")
def _count(
    committed: CommittedBatch,
    parts: Sequence[Sequence[OutputRow]],
    result: BatchResult,
    letters: Mapping[str, int],
    resolved: int,
    seconds: Mapping[str, float],
) -> None:
    metrics.committed(
        events=result.counts.get("events", 0),
        sessions=committed.sessions,
        output_events=committed.output_events,
        output_bytes=sum(row.size for rows in parts for row in rows),
        dead_letters=letters,
        resolved=resolved,
        duplicates=result.counts.get("duplicates", 0),
        unusable_schema=result.counts.get("unusable_schema", 0),
        rebuilt=sum(found.rebuilt_events or 0 for found in result.partitions),
        seconds={
            "open": result.seconds.get("open_s", 0.0),
            "assemble": result.seconds.get("assemble_s", 0.0),
            "transform": result.seconds.get("transform_s", 0.0),
            **seconds,
        },
    )


def _report(
    committed: CommittedBatch,
    spark_batch: int,
    result: BatchResult,
    resolved: int,
    seconds: Mapping[str, float],
) -> None:
    """Log `batch_committed` for each batch, after lines about rebuilt sessions, resolved letters and the cache, if there are any. The times
    follow at debug level.
    """
    rebuilt = [found for found in result.partitions if found.rebuilt_events is not None]
    if rebuilt:
        events = sum(found.rebuilt_events or 0 for found in rebuilt)
        log.info("open_sessions_rebuilt", batch=committed.batch_id, partitions=len(rebuilt), events=events)
    differing = [found.where for found in rebuilt if found.differs]
    if differing:
        log.warning("open_sessions_differ", batch=committed.batch_id, partitions=differing)
    if resolved:
        log.info("dead_letters_resolved", batch=committed.batch_id, letters=resolved)
    problem = next((found.problem for found in result.partitions if found.problem), None)
    if problem:
        log.warning("session_cache", because=problem)
    log.info(
        "batch_committed",
        batch=committed.batch_id,
        events=result.counts.get("events", 0),
        sessions=committed.sessions,
        outputs=committed.output_events,
        dead_letters=committed.dead_letters,
        commit_s=round(seconds["commit"], 3),
    )
    log.debug(
        "batch_computed",
        batch=committed.batch_id,
        spark_batch=spark_batch,
        assemble_s=round(result.seconds.get("assemble_s", 0.0), 3),
        transform_s=round(result.seconds.get("transform_s", 0.0), 3),
    )
