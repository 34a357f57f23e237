"""Reads a lane's next rows and the ledger they belong to, in one snapshot of the outbox."""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from db.statements import statement
from publisher import ways_out
from publisher.checks import LaneStoppedError, Position, Why, check_ledger
from publisher.cursor import ChunkLimits, Cursor, LedgerRow, first_gap
from publisher.records import Row, value_bytes

# Ledger rows looked at in one snapshot: bounds the memory and the time of a lane that is far behind.
_LEDGER_WINDOW = 1_000


class Chunk(NamedTuple):
    """The rows after the cursor, and the cursor after them. `more`: the ledger goes on beyond it.

    `epoch_end`: the last batch of the epoch, None while it is the newest.
    """

    rows: list[Row]
    end: Cursor
    commit_id: UUID | None
    more: bool
    epoch_end: int | None

    def ends_epoch(self) -> bool:
        """Whether nothing of the epoch is left after this chunk."""
        return self.epoch_end is not None and self.end == Cursor(self.epoch_end)


class Reader:
    """One lane's reader."""

    def __init__(self, epoch: int, lane: int, limits: ChunkLimits) -> None:
        self._epoch = epoch
        self._lane = lane
        self._limits = limits
        self._bytes_per_row = 0.0

    def read(self, connection: psycopg.Connection[Any], position: Position) -> Chunk:
        """Return the next chunk. Raises LaneStoppedError when the ledger is not the one that was delivered, psycopg.Error."""
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            # The rows, the ledger and the epochs must be of one moment, or a batch could be passed half seen.
            cursor.execute(statement("publisher", "snapshot"))
            at = position.cursor
            cursor.execute(
                statement("publisher", "ledger_window"),
                {"from_batch": at.batch_id, "batches": _LEDGER_WINDOW + 1},
            )
            window = [LedgerRow._make(row) for row in cursor.fetchall()]
            ahead = self._check(window, position)
            end_of_epoch = cursor.execute(
                statement("publisher", "epoch_end"), {"epoch": self._epoch}
            ).fetchone()
            epoch_end: int | None = None if end_of_epoch is None else end_of_epoch[0]
            commits = {row.batch_id: row.commit_id for row in window}
            last = ahead[-1].batch_id if ahead else at.batch_id
            upper = last if epoch_end is None else min(last, epoch_end)
            if at >= Cursor(upper):
                return Chunk([], at, position.commit_id, False, epoch_end)
            rows, exhausted = self._rows(cursor, at, upper)
        if exhausted:
            full = len(ahead) >= _LEDGER_WINDOW and upper == last
            return Chunk(rows, Cursor(upper), commits[upper], full, epoch_end)
        end = Cursor(rows[-1].batch_id, rows[-1].session_key)
        return Chunk(rows, end, commits[end.batch_id], True, epoch_end)

    def _check(self, window: list[LedgerRow], position: Position) -> list[LedgerRow]:
        """Return the window's rows after the cursor's batch, once cursor and window are found sound."""
        at = position.cursor.batch_id
        own = window[0].commit_id if window and window[0].batch_id == at else None
        check_ledger(position, own)
        ahead = [row for row in window if row.batch_id > at]
        gap = first_gap(at, ahead)
        if gap is not None:
            present = next(row.batch_id for row in ahead if row.batch_id > gap)
            raise LaneStoppedError(
                Why.LEDGER_GAP,
                f"the ledger has no batch {gap}, though it has later ones; batches are numbered without gaps, so rows of "
                f"outbox.batch were deleted by hand or lost. {ways_out.GAP.format(present=present, next_batch=present + 1)}",
            )
        return ahead

    def _rows(self, cursor: psycopg.Cursor[Any], after: Cursor, upper: int) -> tuple[list[Row], bool]:
        """Return rows up to the limits, and whether there are no more up to batch `upper`."""
        rows: list[Row] = []
        size = 0
        make = Row._make
        while step := self._limits.next_step(len(rows), size, self._bytes_per_row):
            from_batch, from_key = after.exclusive_bound()
            cursor.execute(
                statement("publisher", "lane_rows"),
                {
                    "lane": self._lane,
                    "from_batch": from_batch,
                    "from_key": from_key,
                    "to_batch": upper,
                    "rows": step,
                },
            )
            fetched = [make(row) for row in cursor.fetchall()]
            if fetched:
                fetched_bytes = sum(map(value_bytes, fetched))
                size += fetched_bytes
                self._bytes_per_row = fetched_bytes / len(fetched)
                rows += fetched
                after = Cursor(rows[-1].batch_id, rows[-1].session_key)
            if len(fetched) < step:
                return rows, True
        return rows, False
