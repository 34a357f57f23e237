"""Erases session keys from the archive, one partition at a time, or reports that this machine cannot reach the archive.

For each partition:

1. write the files without the keys;
2. only with tombstones: in a transaction that is rolled back, read which replays need the old files; if there are any, stop;
3. only with tombstones: write them, outside of any Postgres transaction, so that the job's commits do not wait for Kafka;
4. put the new files in force, unless a replay needs the old ones, or may have sent rows since step 2: a value after its tombstone.

If step 4 is not reached, or refused, the rows are still in the archive, and the next run writes the tombstones again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import psycopg

from db.statements import queries
from publisher.archive.catalogue import ArchivedPartition, read_catalogue
from publisher.archive.files import ArchiveDamagedError
from publisher.archive.opening import open_archive
from publisher.erasure.tombstones import TombstoneWriter
from service.errors import OutboxError, SettingsError, UnavailableError
from service.lifecycle.fault_points import reach
from service.settings import RetentionSettings

if TYPE_CHECKING:
    from publisher.archive.archive import Archive

_ERASURE = queries("publisher.erasure", "erasure")

_SHOWN = 3

_Changing = Callable[..., AbstractContextManager[None]]
"""Opens a transaction; with `force_rollback=True`, one that is rolled back."""
_Lease = tuple[int, int | None, Any]
"""(replay id, token of its lease, end of its lease); the latter two are None once the replay is past the partition."""


@dataclass(slots=True)
class ArchiveErasureResult:
    """`erased`, `tombstones`: {session key: their number}. `left`: why a key may still be in the archive, and what to do."""

    erased: Counter[str] = field(default_factory=Counter)
    tombstones: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)


class ArchiveErasure:
    """Erases from the archive of one outbox, and first writes tombstones for what it erases.

    `archive` is None if this machine cannot open the archive; `unreachable` is the reason.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        archive: "Archive | None",
        unreachable: OutboxError | None = None,
        writer: TombstoneWriter | None = None,
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._archive = archive
        self._unreachable = unreachable

    def count(self, keys: Sequence[str]) -> dict[str, int]:
        """Return {session key: archived rows}, without the keys that have none. Raises ArchiveDamagedError, UnavailableError,
        psycopg.Error."""
        from publisher.archive.rewriting import count_keys

        found: dict[str, int] = {}
        if self._archive is None:
            raise UnavailableError(
                f"the archive cannot be reached from here, and may have the keys: {self._unreachable}"
            )
        try:
            for of in read_catalogue(self._connection):
                for key, rows in count_keys(self._archive, of, keys).items():
                    found[key] = found.get(key, 0) + rows
        except OSError as error:
            raise UnavailableError(f"the archive cannot be read: {error}") from error
        return found

    def run(
        self,
        keys: Sequence[str],
        changing: _Changing,
        record: Callable[..., None],
    ) -> ArchiveErasureResult:
        """Erase the rows that may be erased now. `record` writes into the operator log.

        Raises SettingsError if the archive now belongs to another database, UnavailableError, psycopg.Error.
        """
        found = ArchiveErasureResult()
        if self._archive is None:
            found.left.append(
                f"the archive cannot be reached from here, and may have the key: {self._unreachable}"
            )
            return found
        for of in read_catalogue(self._connection):
            where = f"the archive of batches {of.from_batch} to {of.to_batch}"
            try:
                self._erase(self._archive, of, keys, found, changing, record)
            except (ArchiveDamagedError, OSError) as error:
                found.left.append(f"{where} may have the key: {error}. `publisher audit --archive` says more")
        try:
            unknown = self._remove_garbage(self._archive, changing)
            if unknown:
                found.left.append(
                    f"{len(unknown)} files in the archive may have the key, of partitions that are neither here nor archived "
                    f"({', '.join(unknown[:_SHOWN])}): if they are of no other database, remove them, and run the command again"
                )
        except (ArchiveDamagedError, OSError) as error:
            found.left.append(f"files that a kill left in the archive may have the key: {error}")
        return found

    def _erase(
        self,
        archive: "Archive",
        of: ArchivedPartition,
        keys: Sequence[str],
        found: ArchiveErasureResult,
        changing: _Changing,
        record: Callable[..., None],
    ) -> None:
        from publisher.archive.rewriting import put_in_force, write_without

        rewriting = write_without(self._connection, archive, of, keys)
        if not rewriting.erased:
            return
        archive.require_owner(self._connection)
        writer = self._writer
        tombstones = {
            key: writer.wanted(key, rows) if writer is not None else []
            for key, rows in rewriting.erased.items()
        }
        replays: list[int] = []
        leases: set[_Lease] | None = None
        if writer is not None and any(tombstones.values()):
            with changing(force_rollback=True):
                replays, leases = put_in_force(self._connection, of, rewriting), self._leases(of)
            if not replays:
                writer.write(list(chain.from_iterable(tombstones.values())))
                reach("archive.after_tombstones")
        if not replays:
            with changing():
                replays = put_in_force(self._connection, of, rewriting) or self._changed_since(of, leases)
                if replays:
                    raise psycopg.Rollback
                record(
                    archived_rows=sum(map(len, rewriting.erased.values())),
                    tombstones=sum(map(len, tombstones.values())),
                )
                reach("archive.before_rewrite")
        if replays:
            found.left += [
                f"replay {replay_id} reads the archive of batches {of.from_batch} to {of.to_batch}: wait until it has passed them, or "
                "pause it; if it stands at the key's row, continue or cancel it"
                for replay_id in replays
            ]
            return
        reach("archive.after_rewrite")
        for key, rows in rewriting.erased.items():
            found.erased[key] += len(rows)
            found.tombstones[key] += len(tombstones[key])

    def _changed_since(self, of: ArchivedPartition, leases: set[_Lease] | None) -> list[int]:
        """Return the replays whose leases have changed since `leases` were read; none if they were not read."""
        if leases is None:
            return []
        return sorted({replay_id for replay_id, *_ in self._leases(of) - leases})

    def _leases(self, of: ArchivedPartition) -> set[_Lease]:
        return set(
            self._connection.execute(_ERASURE["archive_leases"], {"partition": of.partition}).fetchall()
        )

    def _remove_garbage(self, archive: "Archive", changing: _Changing) -> list[str]:
        from publisher.archive.rewriting import remove_garbage

        with changing():
            # Keeps retention away: no manifest in force names the files that retention is writing, so they would look like garbage.
            self._connection.execute(_ERASURE["hold"])
            return remove_garbage(self._connection, archive)


def archive_of(
    connection: psycopg.Connection[Any], settings: RetentionSettings, writer: TombstoneWriter | None = None
) -> ArchiveErasure | None:
    """Return the archive to erase from, None if nothing was archived and no archive is set. Raises psycopg.Error."""
    if not settings.archive and not read_catalogue(connection):
        return None
    try:
        archive = open_archive(connection, settings, writing=True)
        return ArchiveErasure(connection, archive, writer=writer)
    except (SettingsError, UnavailableError) as error:
        return ArchiveErasure(connection, None, error)
