"""Reads a replay's next rows in (batch_id, session_key) order, in short snapshots.

First the places of many rows are listed, out of the indexes alone; then their wide columns are fetched, a transaction's worth at a time.
"""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from db.statements import statement
from publisher.cursor import ChunkLimits, Cursor
from publisher.records import Row, value_bytes
from publisher.replay.errors import ReplayStoppedError, Why
from publisher.replay.outgoing import Outgoing
from publisher.replay.progress import ANEW, check_ledger
from publisher.replay.store import Replay

# Places listed at once.
_LISTED = 10_000
# Batches looked through at once for the keys of a list: as many as a partition holds.
_WINDOW = 10_000


class _Place(NamedTuple):
    batch_id: int
    session_key: str
    parked: bool


class ReplayChunk(NamedTuple):
    """The rows after the cursor, the cursor after them and the commit id of its batch."""

    rows: list[Row]
    end: Cursor
    commit_id: UUID


class ReplayReader:
    """One replay's. Forgets its list when a connection is lost: make another one then."""

    def __init__(self, replay: Replay, limits: ChunkLimits, outgoing: Outgoing, at: Cursor) -> None:
        self._replay = replay
        self._limits = limits
        self._topics = outgoing.topics
        self._places: list[_Place] = []
        self._taken = 0
        self._listed = at
        self._bytes_per_row = 0.0

    def read(
        self,
        connection: psycopg.Connection[Any],
        at: Cursor,
        sent: UUID | None,
        rows: int,
        events: int | None,
    ) -> ReplayChunk:
        """Return the rows after `at`, `rows` at the most, fewer where they would have more than `events` events.

        `sent`: the commit id at `at` when that was sent, None before the first. Raises ReplayStoppedError, psycopg.Error.
        """
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            cursor.execute(statement("publisher", "snapshot"))
            if sent is not None:
                check_ledger(self._replay.replay_id, at, sent, _commit_id(cursor, at.batch_id))
            if self._taken == len(self._places):
                self._list(cursor)
            fetched, end = self._fetch(cursor, rows, events)
            commit_id = _commit_id(cursor, end.batch_id)
        if commit_id is None:
            raise ReplayStoppedError(
                Why.DATABASE_RESTORED,
                f"the ledger has no batch {end.batch_id}, which replay {self._replay.replay_id} is to send: rows of outbox.batch were "
                f"deleted, or the database was set back. {ANEW.format(id=self._replay.replay_id)}",
            )
        return ReplayChunk(fetched, end, commit_id)

    def _list(self, cursor: psycopg.Cursor[Any]) -> None:
        replay = self._replay
        upper = replay.to_batch
        if replay.only_keys:
            upper = min(upper, self._listed.batch_id + _WINDOW)
        from_batch, from_key = self._listed.exclusive_bound()
        cursor.execute(
            statement("publisher", "replay_next_of_keys" if replay.only_keys else "replay_next"),
            {
                "replay_id": replay.replay_id,
                "from_batch": from_batch,
                "from_key": from_key,
                "to_batch": upper,
                "rows": _LISTED,
            },
        )
        self._places = [_Place._make(row) for row in cursor.fetchall()]
        self._taken = 0
        full = len(self._places) == _LISTED
        last = self._places[-1] if full else None
        self._listed = Cursor(upper) if last is None else Cursor(last.batch_id, last.session_key)

    def _fetch(
        self, cursor: psycopg.Cursor[Any], most_rows: int, most_events: int | None
    ) -> tuple[list[Row], Cursor]:
        """Take places off the list until a limit is met; return their rows and the cursor after them."""
        rows: list[Row] = []
        size, events, taken = 0, 0, 0
        while self._taken < len(self._places) and (most_events is None or events < most_events):
            step = self._limits.next_step(taken, size, self._bytes_per_row)
            step = min(step, most_rows - taken)
            if step <= 0:
                break
            places = self._places[self._taken : self._taken + step]
            found = self._rows(cursor, [place for place in places if not place.parked])
            if found:
                fetched_bytes = sum(map(value_bytes, found.values()))
                size += fetched_bytes
                self._bytes_per_row = fetched_bytes / len(found)
            for place in places:
                self._taken += 1
                taken += 1
                row = found.get((place.batch_id, place.session_key))
                if row is not None:
                    rows.append(row)
                    events += self._events(row)
                    if most_events is not None and events >= most_events:
                        break
        if self._taken == len(self._places):
            return rows, self._listed
        last = self._places[self._taken - 1]
        return rows, Cursor(last.batch_id, last.session_key)

    def _events(self, row: Row) -> int:
        if self._topics is None:
            return len(row.topics)
        return sum([topic in self._topics for topic in row.topics])

    def _rows(self, cursor: psycopg.Cursor[Any], places: list[_Place]) -> dict[tuple[int, str], Row]:
        if not places:
            return {}
        cursor.execute(
            statement("publisher", "replay_rows"),
            {
                "batch_ids": [place.batch_id for place in places],
                "session_keys": [place.session_key for place in places],
                "from_batch": places[0].batch_id,
                "to_batch": places[-1].batch_id,
            },
        )
        found = {(row[0], row[1]): Row._make(row) for row in cursor.fetchall()}
        if len(found) != len(places):
            raise ReplayStoppedError(
                Why.ROWS_GONE,
                f"{len(places) - len(found)} rows of batches {places[0].batch_id} to {places[-1].batch_id} are gone, which replay "
                f"{self._replay.replay_id} is to send: they were deleted meanwhile. "
                f"{ANEW.format(id=self._replay.replay_id)}",
            )
        return found


def _commit_id(cursor: psycopg.Cursor[Any], batch_id: int) -> UUID | None:
    row = cursor.execute(statement("publisher", "ledger_commit"), {"batch_id": batch_id}).fetchone()
    return None if row is None else row[0]
