"""Reads a replay's rows from the archive: which batches it covers, how many rows they have, and the rows in order."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from contract.cursor import Cursor
from publisher.archive.catalogue import ArchivedPartition, archive_id_at, read_catalogue
from publisher.archive.files import ArchiveDamagedError
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition, check_ledger
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, value_bytes
from publisher.protocol.remediation import Remediation
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.protocol.stored_row import StoredRow
from publisher.replay import store
from publisher.replay.reader import ReplayChunk
from publisher.replay.selection import Count, Filters, ReplayRange, TopicCount, holes_of
from publisher.replay.store import Replay
from service.errors import UnavailableError

if TYPE_CHECKING:
    from publisher.archive.archive import Archive

_MOST_S = 5.0
"""The longest search for a row before the position is recorded, which renews the lease."""


def resolve(connection: psycopg.Connection[Any], archive: "Archive", filters: Filters) -> ReplayRange:
    """Resolve the filters to archived batches, all of which were delivered. Raises ArchiveDamagedError, OSError, psycopg.Error."""
    partitions = read_catalogue(connection)
    first = max(1, filters.from_batch or 1)
    archived_to = partitions[-1].to_batch if partitions else 0
    last = min(archived_to, filters.to_batch if filters.to_batch is not None else archived_to)
    if filters.since is not None or filters.until is not None:
        found = archive.committed(
            partitions,
            None if filters.since is None else filters.since.here(),
            None if filters.until is None else filters.until.here(),
        )
        first, last = max(first, found[0]), min(last, found[1])
    notes = []
    covered = [of for of in partitions if of.to_batch >= first and of.from_batch <= last]
    if covered and first < covered[0].from_batch:
        notes.append(
            f"batches {first:,} to {covered[0].from_batch - 1:,} are left out: they were not archived"
        )
        first = covered[0].from_batch
    # The last batch must be in the archive, because a replay records that batch's archive id at its end.
    last = min(last, covered[-1].to_batch) if covered else first - 1
    if filters.to_batch is None or filters.to_batch > archived_to:
        notes.append(
            f"the archive ends with batch {archived_to:,}: later ones are replayed without --from-archive"
        )
    holes = holes_of([(of.from_batch, of.to_batch + 1) for of in partitions], first, last)
    notes += [
        f"batches {begin:,} to {end:,} are left out: they are not in the archive" for begin, end in holes
    ]
    return ReplayRange(first, last, notes, holes)


def count(
    archive: "Archive",
    partitions: Sequence[ArchivedPartition],
    batches: ReplayRange,
    filters: Filters,
    tick: Callable[[int], None] = lambda _: None,
) -> tuple[Count, list[str]]:
    """Count the rows of the batches that match the filters; also return the named session keys that have no row.

    Raises ArchiveDamagedError, OSError.
    """
    found, seen = Count(), set[str]()
    for of in partitions:
        at = Cursor(max(of.from_batch, batches.first) - 1)
        for rows, end in archive.rows(of, at, batches.last, filters.keys):
            for row in rows:
                seen.add(row.session_key)
                if not row.was_parked:
                    _add(found, row, filters)
            tick(end.batch_id - at.batch_id)
            at = end
    return found, sorted(set(filters.keys or ()) - seen)


def rows_of_plan(
    archive: "Archive", partitions: Sequence[ArchivedPartition], batches: ReplayRange, filters: Filters
) -> Iterator[StoredRow]:
    """Yield, in order, the rows that `count` has counted, whatever their topics. Raises ArchiveDamagedError, UnavailableError."""
    try:
        for of in partitions:
            at = Cursor(max(of.from_batch, batches.first) - 1)
            for rows, _ in archive.rows(of, at, batches.last, filters.keys):
                yield from (row for row in rows if not row.was_parked)
    except OSError as error:
        raise UnavailableError(f"the archive cannot be read: {error}") from error


def _add(found: Count, row: StoredRow, filters: Filters) -> None:
    topics: dict[str, TopicCount] = {}
    for topic, value in zip(row.topics, row.values, strict=True):
        if filters.topics is None or topic in filters.topics:
            before = topics.get(topic, TopicCount(1, 0, 0))
            topics[topic] = TopicCount(1, before.events + 1, before.bytes + len(value or b""))
    for number, (topic, part) in enumerate(topics.items()):
        found.add(topic, part, *((1, len(row.session_ends)) if number == 0 else (0, 0)))


class ArchiveReader:
    """Reads the rows of one replay, as ReplayReader does. The archive id of a partition replaces the commit ids of its batches."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        archive: "Archive",
        replay: Replay,
        outgoing: Outgoing,
        remediation: Remediation,
        renew: Callable[[psycopg.Connection[Any]], None],
    ) -> None:
        """`renew` extends the lease, because the search for the next rows may take long."""
        self._archive = archive
        self._renew = renew
        self._replay = replay
        self._outgoing = outgoing
        self._remediation = remediation
        self._keys = store.keys(connection, replay.replay_id) if replay.only_keys else None
        self._partitions: list[ArchivedPartition] | None = None
        self._groups: Iterator[tuple[list[StoredRow], Cursor]] = iter(())
        self._pending: deque[Row] = deque()
        self._end = Cursor(0)
        """The cursor after the last pending row."""

    def read(
        self, connection: psycopg.Connection[Any], position: DeliveryPosition, limits: ChunkLimits
    ) -> ReplayChunk:
        """Return the rows after `position`. Raises StoppedError, psycopg.Error, UnavailableError."""
        if position.commit_id is not None:
            check_ledger(position, archive_id_at(connection, position.cursor.batch_id), self._remediation)
        try:
            rows, end = self._unchanged(connection, position.cursor, limits)
        except ArchiveDamagedError as error:
            raise StoppedError(
                StopReason.ROWS_GONE, f"{error}. `publisher audit --archive` says what else is damaged"
            ) from error
        except OSError as error:
            raise UnavailableError(f"the archive cannot be read: {error}") from error
        commit_id = archive_id_at(connection, end.batch_id)
        if commit_id is None:
            raise StoppedError(
                StopReason.DATABASE_RESTORED,
                f"outbox.archived has no batch {end.batch_id}, which {self._remediation.subject} is to send: the database was set back. "
                f"{self._remediation.restored}",
            )
        return ReplayChunk(rows, end, commit_id)

    def _unchanged(
        self, connection: psycopg.Connection[Any], after: Cursor, limits: ChunkLimits
    ) -> tuple[list[Row], Cursor]:
        """Return rows of the present files. While the lease is not held, an erasure may replace files; after `renew` it must wait."""
        while True:
            before = read_catalogue(connection, after.batch_id, self._replay.to_batch)
            if self._partitions is None or not _ends_with(self._partitions, before):
                self._partitions = before
                self._groups = self._read(before, after)
                self._pending.clear()
            found = self._take(limits)
            self._renew(connection)
            if read_catalogue(connection, after.batch_id, self._replay.to_batch) == before:
                return found

    def _read(
        self, partitions: Sequence[ArchivedPartition], after: Cursor
    ) -> Iterator[tuple[list[StoredRow], Cursor]]:
        for of in partitions:
            yield from self._archive.rows(of, after, self._replay.to_batch, self._keys)

    def _take(self, limits: ChunkLimits) -> tuple[list[Row], Cursor]:
        began = time.monotonic()
        while not self._pending:
            group = next(self._groups, None)
            if group is None:
                return [], Cursor(self._replay.to_batch)
            found, self._end = group
            try:
                self._pending.extend(row.row() for row in found if not row.was_parked)
            except ValueError as error:
                raise ArchiveDamagedError(f"a row up to {self._end} cannot be read: {error}") from error
            if not self._pending and time.monotonic() - began > _MOST_S:
                return [], self._end
        rows: list[Row] = []
        size = events = 0
        while self._pending and len(rows) < limits.rows and size < limits.bytes:
            events += self._outgoing.events(self._pending[0])
            if rows and limits.events is not None and events > limits.events:
                break
            rows.append(self._pending.popleft())
            size += value_bytes(rows[-1])
        return rows, self._end if not self._pending else Cursor(rows[-1].batch_id, rows[-1].session_key)


def _ends_with(known: Sequence[ArchivedPartition], now: Sequence[ArchivedPartition]) -> bool:
    """Whether the partitions that are not read yet are unchanged."""
    return list(known[len(known) - len(now) :]) == list(now)
