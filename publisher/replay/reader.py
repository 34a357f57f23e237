"""Reads a replay's next rows in (batch_id, session_key) order, in short snapshots.

Many rows are listed first, from the indexes alone; their wide columns are then fetched for one transaction at a time.
"""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from contract.cursor import Cursor
from db.connection import snapshot
from db.statements import queries
from publisher.outbox.ledger import commit_id_at
from publisher.protocol.chunk_limits import ChunkLimits, FetchSize
from publisher.protocol.history_check import DeliveryPosition, check_ledger
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, value_bytes
from publisher.protocol.remediation import Remediation
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.replay.store import Replay

_REPLAYS = queries("publisher", "replays")

# The most rows that are listed at once.
LISTED_ROWS = 10_000
# The batches that are searched at once: as many as the smallest partition holds.
WINDOW_BATCHES = 10_000


class _ListedRow(NamedTuple):
    batch_id: int
    session_key: str
    parked: bool


class ReplayChunk(NamedTuple):
    """The rows after the cursor, the cursor after these rows, and the commit id of that cursor's batch."""

    rows: list[Row]
    end: Cursor
    commit_id: UUID


class ReplayReader:
    """Reads the rows of one replay. After the connection is lost its list is no longer valid, and a new reader is needed."""

    def __init__(self, replay: Replay, outgoing: Outgoing, at: Cursor, remediation: Remediation) -> None:
        self._replay = replay
        self._outgoing = outgoing
        self._remediation = remediation
        self._listed_rows: list[_ListedRow] = []
        self._taken = 0
        self._listed = at
        self._fetch_size = FetchSize()

    def read(
        self, connection: psycopg.Connection[Any], position: DeliveryPosition, limits: ChunkLimits
    ) -> ReplayChunk:
        """Return the rows after `position`. Raises StoppedError, psycopg.Error."""
        with snapshot(connection), connection.cursor(binary=True) as cursor:
            if position.commit_id is not None:
                check_ledger(position, commit_id_at(cursor, position.cursor.batch_id), self._remediation)
            if self._taken == len(self._listed_rows):
                self._list(cursor)
            fetched, end = self._fetch(cursor, limits)
            commit_id = commit_id_at(cursor, end.batch_id)
        if commit_id is None:
            raise StoppedError(
                StopReason.DATABASE_RESTORED,
                f"the ledger has no batch {end.batch_id}, which {self._remediation.subject} is to send: rows of outbox.batch were "
                f"deleted, or the database was set back. {self._remediation.restored}",
            )
        return ReplayChunk(fetched, end, commit_id)

    def _list(self, cursor: psycopg.Cursor[Any]) -> None:
        replay = self._replay
        upper = min(replay.to_batch, self._listed.batch_id + WINDOW_BATCHES)
        from_batch, from_key = self._listed.exclusive_bound()
        cursor.execute(
            _REPLAYS["next_of_keys"] if replay.only_keys else _REPLAYS["next"],
            {
                "replay_id": replay.replay_id,
                "from_batch": from_batch,
                "from_key": from_key,
                "to_batch": upper,
                "rows": LISTED_ROWS,
            },
            prepare=False,
        )
        self._listed_rows = [_ListedRow._make(row) for row in cursor.fetchall()]
        self._taken = 0
        full = len(self._listed_rows) == LISTED_ROWS
        last = self._listed_rows[-1] if full else None
        self._listed = Cursor(upper) if last is None else Cursor(last.batch_id, last.session_key)

    def _fetch(self, cursor: psycopg.Cursor[Any], limits: ChunkLimits) -> tuple[list[Row], Cursor]:
        """Take rows off the list until a limit is reached; return them, and the cursor after them."""
        rows: list[Row] = []
        size, events, first = 0, 0, self._taken
        full = False
        while self._taken < len(self._listed_rows) and not full:
            left = limits.bytes - size
            if self._taken - first >= limits.rows or left <= 0:
                break
            step = self._fetch_size.rows(limits.rows - (self._taken - first), left)
            listed = self._listed_rows[self._taken : self._taken + step]
            found, listed = self._rows(cursor, listed, left)
            size += sum(map(value_bytes, found.values()))
            for each in listed:
                row = found.get((each.batch_id, each.session_key))
                if row is not None:
                    events += self._outgoing.events(row)
                    full = bool(rows) and limits.events is not None and events > limits.events
                    if full:
                        break
                    rows.append(row)
                self._taken += 1
        if self._taken == len(self._listed_rows):
            return rows, self._listed
        last = self._listed_rows[self._taken - 1]
        return rows, Cursor(last.batch_id, last.session_key)

    def _rows(
        self, cursor: psycopg.Cursor[Any], listed: list[_ListedRow], most_bytes: int
    ) -> tuple[dict[tuple[int, str], Row], list[_ListedRow]]:
        """Fetch as many of the listed rows as `most_bytes` allows, at least one; return them, and their part of the list."""
        wanted = [row for row in listed if not row.parked]
        if not wanted:
            return {}, listed
        cursor.execute(
            _REPLAYS["rows"],
            {
                "batch_ids": [row.batch_id for row in wanted],
                "session_keys": [row.session_key for row in wanted],
                "from_batch": wanted[0].batch_id,
                "to_batch": wanted[-1].batch_id,
                "bytes": most_bytes,
                "expansion": self._fetch_size.expansion,
            },
            prepare=False,
        )
        fetched = cursor.fetchall()
        found = {(row[0], row[1]): Row._make(row[:-1]) for row in fetched}
        sizes = sum([row[-1] for row in fetched])
        self._fetch_size.fetched(len(found), sum(map(value_bytes, found.values())), sizes)
        if fetched and sizes >= most_bytes:
            last = next(
                n for n, row in enumerate(listed) if (row.batch_id, row.session_key) == fetched[-1][:2]
            )
            listed = listed[: last + 1]
            wanted = [row for row in listed if not row.parked]
        if len(found) != len(wanted):
            raise StoppedError(
                StopReason.ROWS_GONE,
                f"{len(wanted) - len(found)} rows of batches {wanted[0].batch_id} to {wanted[-1].batch_id} are gone, which "
                f"{self._remediation.subject} is to send: they were deleted meanwhile. {self._remediation.restored}",
            )
        return found, listed
