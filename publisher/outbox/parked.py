"""Parks rows whose own content Kafka refuses, tells lanes which rows are parked, and requeues or discards them once the cause is corrected.

A requeue copies rows into new batches of the ledger (function `outbox.requeue`), so that a lane delivers them exactly once like every
other row. Each batch is one transaction: after a kill, or beside a second requeue, the remaining rows are still parked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from contract.cursor import Cursor
from contract.progress import Progress
from contract.session_keys import lane_hash
from db import operations, windows
from db.statements import queries
from db.windows import Window
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.outbox.ledger import newest_lane_count
from publisher.protocol.records import RowKey
from publisher.protocol.refusals import Refusal
from service.errors import ContinuityError
from service.lifecycle.fault_points import reach

_PARKED = queries("publisher", "parked")

_READ_ROWS = 10_000
"""The most parked rows of a lane that are read at a time."""

# The most rows and bytes that one batch copies. The job waits for the writer lock meanwhile.
_BATCH_ROWS = 1_000
_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Choice:
    """The chosen parked rows: the named rows, the rows parked for some reasons, or (if both are None) all.

    Only rows of batches up to `to_batch`, the newest batch at the start: a requeued row that is refused again is not requeued twice.
    """

    to_batch: int
    rows: Sequence[RowKey] | None = None
    reasons: Sequence[str] | None = None

    def asked(self) -> dict[str, Any]:
        """Return the options, for the operator log."""
        rows = None if self.rows is None else len(self.rows)
        return {"reasons": self.reasons, "rows": rows, "all": self.rows is None and self.reasons is None}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the statements that choose rows."""
        return {
            "to_batch": self.to_batch,
            "reasons": None if self.reasons is None else list(self.reasons),
            "batch_ids": None if self.rows is None else [row.batch_id for row in self.rows],
            "session_keys": None if self.rows is None else [row.session_key for row in self.rows],
        }


@dataclass
class Requeued:
    """The result of a requeue: its batches, their number of rows, and the chosen rows that the outbox no longer has."""

    batches: list[int] = field(default_factory=list)
    rows: int = 0
    missing: list[RowKey] = field(default_factory=list)


def park(connection: psycopg.Connection[Any], lease: Lease, key: RowKey, found: Refusal) -> None:
    """Park a row of the lease's lane. Raises LeaseLostError if another holder has the lease."""
    written = connection.execute(_PARKED["park"], lease.parameters | key._asdict() | found._asdict())
    if written.rowcount != 1:
        raise LeaseLostError("the lane was taken over by another publisher")


def parked_after(
    connection: Callable[[], psycopg.Connection[Any]], lease: Lease, cursor: Cursor
) -> Iterator[RowKey]:
    """Yield the parked rows of the lane after the cursor, in order, so that a retry skips the same rows.

    `connection` is called before each read. Raises psycopg.Error, and what `connection` raises.
    """
    after: tuple[int, str] | None = cursor.exclusive_bound()
    while after is not None:
        bounds = {"from_batch": after[0], "from_key": after[1], "rows": _READ_ROWS}
        found = connection().execute(_PARKED["ahead"], lease.parameters | bounds).fetchall()
        yield from map(RowKey._make, found)
        after = found[-1] if len(found) == _READ_ROWS else None


def parked_within(connection: psycopg.Connection[Any], lease: Lease, progress: Progress) -> int:
    """Return how many of the rows that a transaction covered are parked in Postgres."""
    from_batch, from_key = progress.after.exclusive_bound()
    to_batch, to_key = progress.cursor.exclusive_bound()
    row = connection.execute(
        _PARKED["within"],
        lease.parameters
        | {"from_batch": from_batch, "from_key": from_key, "to_batch": to_batch, "to_key": to_key},
    ).fetchone()
    return 0 if row is None else row[0]


def parked_up_to(connection: psycopg.Connection[Any], epoch: int, lane: int, cursor: Cursor) -> int:
    """Return how many rows of a lane are recorded as parked up to a cursor."""
    batch, key = cursor.exclusive_bound()
    row = connection.execute(
        _PARKED["up_to"],
        {"epoch": epoch, "lane": lane, "to_batch": batch, "to_key": key},
    ).fetchone()
    return 0 if row is None else row[0]


def count_chosen(connection: psycopg.Connection[Any], choice: Choice) -> tuple[int, int]:
    """Return how many rows are chosen, and how many session keys they have."""
    row = connection.execute(_PARKED["chosen"], choice.parameters()).fetchone()
    return (0, 0) if row is None else (row[0], row[1])


def requeue(
    connection: psycopg.Connection[Any], choice: Choice, done: Callable[[int], None] = lambda _: None
) -> Requeued:
    """Requeue the chosen rows, oldest first. Rows of the same session key go into different batches, in their order.

    `done` is called with the number of rows of each batch. Raises ContinuityError if there are no lanes yet, psycopg.Error.
    """
    result = Requeued()
    run_id = uuid4()
    for window in _windows(connection, choice):
        # Each round takes one row of every key.
        while _requeue_round(connection, choice, window, run_id, result, done):
            pass
        found = connection.execute(_PARKED["missing"], choice.parameters() | window.bounds, prepare=False)
        result.missing += [RowKey(*row) for row in found]
    return result


def _windows(connection: psycopg.Connection[Any], choice: Choice) -> Iterator[Window]:
    """Cut the batches of the chosen rows into windows, oldest first, so that the rows of a key keep their order."""
    row = connection.execute(_PARKED["span"], choice.parameters()).fetchone()
    return iter(()) if row is None or row[0] is None else windows.cut(*row)


def _requeue_round(
    connection: psycopg.Connection[Any],
    choice: Choice,
    window: Window,
    run_id: UUID,
    result: Requeued,
    done: Callable[[int], None],
) -> bool:
    """Requeue the oldest chosen row of every session key in the window; return whether there was any."""
    after_key = ""
    while step := _next_step(connection, choice, window, after_key):
        try:
            batch_id = _requeue_step(connection, choice, step, run_id)
        except psycopg.errors.SerializationFailure:
            continue  # the lanes, or the parked rows, have changed since they were read: read again
        reach("requeue.after_batch")
        after_key = step[-1].session_key
        result.batches.append(batch_id)
        result.rows += len(step)
        done(len(step))
    return after_key != ""


def _next_step(
    connection: psycopg.Connection[Any], choice: Choice, window: Window, after_key: str
) -> list[RowKey]:
    step: list[RowKey] = []
    size = 0
    parameters = choice.parameters() | window.bounds | {"after_key": after_key, "rows": _BATCH_ROWS}
    for batch_id, session_key, row_bytes in connection.execute(_PARKED["next"], parameters, prepare=False):
        size += row_bytes
        if step and size > _BATCH_BYTES:
            break
        step.append(RowKey(batch_id, session_key))
    return step


def _requeue_step(
    connection: psycopg.Connection[Any], choice: Choice, step: Sequence[RowKey], run_id: UUID
) -> int:
    lanes = newest_lane_count(connection)
    if lanes is None:
        raise ContinuityError("there are no lanes yet: the job makes the first ones when it starts")
    with connection.transaction():
        row = connection.execute(
            _PARKED["requeue"],
            {
                "session_keys": [row.session_key for row in step],
                "batch_ids": [row.batch_id for row in step],
                "lanes": [lane_hash(row.session_key.encode()) % lanes for row in step],
                "lane_count": lanes,
                "run_id": run_id,
            },
        ).fetchone()
        assert row is not None  # a function's one value
        done = {"rows": len(step), "batch": row[0]}
        operations.record(connection, "publisher parked requeue", choice.asked(), done)
    return int(row[0])


def discard(connection: psycopg.Connection[Any], choice: Choice) -> int:
    """Discard the chosen rows; return their number. They stay in the outbox, but are not sent."""
    with connection.transaction():
        row = connection.execute(_PARKED["discard"], choice.parameters()).fetchone()
        discarded: int = 0 if row is None else row[0]
        if discarded:
            operations.record(connection, "publisher parked discard", choice.asked(), {"rows": discarded})
    return discarded


def explain_not_parked(connection: psycopg.Connection[Any], row: RowKey) -> str | None:
    """Return why a named row cannot be requeued or discarded, None if it is parked."""
    found = connection.execute(_PARKED["row"], row._asdict()).fetchone()
    if found is None:
        return "it was never parked; `publisher parked list --all` shows what was"
    state, requeued_batch = found[6], found[7]
    if state == "requeued":
        return f"it was requeued into batch {requeued_batch} already"
    return "it was discarded" if state == "discarded" else None
