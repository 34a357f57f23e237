"""Reads a lane's next rows and the ledger they belong to, in one snapshot of the outbox and one round trip.

The round trip may be split: `ask` sends the statements; `take` reads the answers after the lane has waited for something else.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from contract.cursor import Cursor
from db.statements import queries
from publisher.monitoring.latency import RowTimes
from publisher.protocol import remediation
from publisher.protocol.chunk_limits import ChunkLimits, FetchSize, LedgerRow, first_gap
from publisher.protocol.history_check import DeliveryPosition, check_ledger
from publisher.protocol.records import Row, value_bytes
from publisher.protocol.stop_reasons import StoppedError, StopReason

_EPOCHS = queries("publisher", "epochs")
_LEDGER = queries("publisher", "ledger")
_ROWS = queries("publisher", "rows")

# Larger than any row that Postgres can store.
ANY_SIZE = 1 << 30
# The most ledger rows that are read in one snapshot, which limits memory and time of a lane that is far behind.
LEDGER_WINDOW = 1_000


class LaneChunk(NamedTuple):
    """The rows after the cursor, and the cursor after these rows. `more`: whether the ledger continues beyond it.

    `epoch_end`: the last batch of the epoch, None for the newest epoch. `times`: one for each row.
    `is_large`: the next row is larger than the limit, and is not in `rows`.
    """

    rows: list[Row]
    end: Cursor
    commit_id: UUID | None
    more: bool
    epoch_end: int | None
    times: Sequence[RowTimes] = ()
    is_large: bool = False

    @property
    def is_last(self) -> bool:
        """Whether the lane must wait for the next batch after this chunk."""
        return not self.more and not self.ends_epoch()

    def ends_epoch(self) -> bool:
        """Whether the epoch has no rows after this chunk."""
        return self.epoch_end is not None and self.end == Cursor(self.epoch_end)


class PendingChunk(NamedTuple):
    """A chunk whose statements are sent and whose answers are not read yet."""

    connection: psycopg.Connection[Any]
    pipeline: ExitStack
    position: DeliveryPosition
    limits: ChunkLimits
    step: int
    ledger: psycopg.Cursor[Any]
    epoch_end: psycopg.Cursor[Any]
    rows: psycopg.Cursor[Any]


class LaneReader:
    """Reads the rows of one lane."""

    def __init__(self, epoch: int, lane: int) -> None:
        self._epoch = epoch
        self._lane = lane
        self._fetch_size = FetchSize()

    def read(
        self,
        connection: psycopg.Connection[Any],
        position: DeliveryPosition,
        limits: ChunkLimits,
        most_row_bytes: int = ANY_SIZE,
    ) -> LaneChunk:
        """Return the next chunk. Raises StoppedError if the ledger is not the one that was delivered, psycopg.Error."""
        return self.take(self.ask(connection, position, limits, most_row_bytes))

    def ask(
        self,
        connection: psycopg.Connection[Any],
        position: DeliveryPosition,
        limits: ChunkLimits,
        most_row_bytes: int = ANY_SIZE,
    ) -> PendingChunk:
        """Send the statements for the chunk after `position`; `take` reads the answers. Rows of more than `most_row_bytes` are not read.

        The connection is in pipeline mode until `take` and cannot be used for anything else. Raises psycopg.Error.
        """
        from_batch, from_key = position.cursor.exclusive_bound()
        step = self._fetch_size.rows(limits.rows, limits.bytes)
        pipeline = ExitStack()
        pipeline.enter_context(connection.pipeline())
        with _closed_on_error(connection):
            # Rows, ledger and epochs must be from one snapshot, or the cursor could pass a batch that was only partly visible.
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            ledger = connection.cursor(binary=True).execute(
                _LEDGER["window"],
                {"from_batch": position.cursor.batch_id, "batches": LEDGER_WINDOW + 1},
            )
            epoch_end = connection.execute(_EPOCHS["end"], {"epoch": self._epoch})
            connection.execute(_ROWS["in_index_order"])
            rows = connection.cursor(binary=True).execute(
                _ROWS["of_lane"],
                {
                    "epoch": self._epoch,
                    "lane": self._lane,
                    "from_batch": from_batch,
                    "from_key": from_key,
                    "to_batch": position.cursor.batch_id + LEDGER_WINDOW,
                    "rows": step,
                    "bytes": limits.bytes,
                    "whole": max(most_row_bytes, limits.bytes),
                    "expansion": self._fetch_size.expansion,
                },
                # A generic plan would name every existing partition (docs/decisions/0029).
                prepare=False,
            )
            connection.execute("COMMIT")
        return PendingChunk(connection, pipeline, position, limits, step, ledger, epoch_end, rows)

    def take(self, asked: PendingChunk) -> LaneChunk:
        """Return the chunk that was asked for. Raises as `read`."""
        with _closed_on_error(asked.connection):
            window = [LedgerRow._make(row) for row in asked.ledger.fetchall()]
            end_of_epoch = asked.epoch_end.fetchone()
            fetched = asked.rows.fetchall()
            asked.pipeline.close()
        # A row that does not fit comes last, without its wide columns.
        all_fit = not fetched or fetched[-1][-1]
        if not all_fit:
            del fetched[-1]
        rows = [Row._make(row[:-3]) for row in fetched]
        sizes = sum([row[-2] for row in fetched])
        self._fetch_size.fetched(len(rows), sum(map(value_bytes, rows)), sizes)
        # Whether the rows ended before any limit was reached.
        all_of_it = all_fit and len(rows) < asked.step and sizes < asked.limits.bytes
        rows = rows[: asked.limits.fitting([len(row.topics) for row in rows])]
        at = asked.position.cursor
        ahead = _check(window, asked.position)
        if not all_fit and not rows:
            return LaneChunk([], at, asked.position.commit_id, True, None, is_large=True)
        epoch_end: int | None = None if end_of_epoch is None else end_of_epoch[0]
        # `last` must not pass the batches that the rows' statement read: the ledger window may have one batch more.
        last = min(ahead[-1].batch_id, at.batch_id + LEDGER_WINDOW) if ahead else at.batch_id
        upper = last if epoch_end is None else min(last, epoch_end)
        if at >= Cursor(upper):
            return LaneChunk([], at, asked.position.commit_id, False, epoch_end)
        commits = {row.batch_id: row.commit_id for row in window}
        committed_s = {row.batch_id: row.committed_s for row in window}
        times = [
            RowTimes(committed_s.get(row.batch_id, 0.0), columns[-3])
            for row, columns in zip(rows, fetched, strict=False)
        ]
        if all_of_it and len(rows) == len(fetched):
            full = len(ahead) >= LEDGER_WINDOW and upper == last
            return LaneChunk(rows, Cursor(upper), commits[upper], full, epoch_end, times)
        end = Cursor(rows[-1].batch_id, rows[-1].session_key)
        return LaneChunk(rows, end, commits[end.batch_id], True, epoch_end, times)


def _check(window: list[LedgerRow], position: DeliveryPosition) -> list[LedgerRow]:
    """Return the window's rows after the cursor's batch.

    Raises StoppedError if the ledger has another batch at the cursor, or lacks a batch.
    """
    at = position.cursor.batch_id
    own = window[0].commit_id if window and window[0].batch_id == at else None
    check_ledger(position, own)
    ahead = [row for row in window if row.batch_id > at]
    gap = first_gap(at, ahead)
    if gap is not None:
        present = next(row.batch_id for row in ahead if row.batch_id > gap)
        raise StoppedError(
            StopReason.LEDGER_GAP,
            f"the ledger has no batch {gap}, though it has later ones; batches are numbered without gaps, so rows of "
            f"outbox.batch were deleted by hand or lost. {remediation.GAP.format(present=present, next_batch=present + 1)}",
        )
    return ahead


@contextmanager
def _closed_on_error(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Close a connection that fails in the middle of a pipeline, because nobody could tell which statements its next answers belong to."""
    try:
        yield
    except BaseException:
        connection.close()
        raise
