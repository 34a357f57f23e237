"""Decides which database may write the archive: `_manifests/owner.json` names the database, and the partition that it archived last.

Only one database may write: a second one would take the archive of the first for the remains of a kill, and remove it. Three checks
detect a copy of the database:

- its origin: another server, another database of the same server, or a timeline that was abandoned;
- its knowledge: it lacks the row of the partition that was archived last, so it was made from an older snapshot, or set back;
- its run: if two databases with the same knowledge write at the same time, the run that began first stops at its next step.

The file is not a lock: two copies that read it at the same moment both pass. Between processes on one database, retention's lock in
Postgres decides.
"""

from typing import Any, Literal
from uuid import UUID, uuid4

import orjson
import psycopg
from pydantic import ValidationError

from publisher.archive.catalogue import read_catalogue
from publisher.archive.files import OWNER, ArchiveDamagedError, ArchiveFiles, FileMissingError
from publisher.archive.manifest import Origin, Strict
from service.errors import SettingsError, UnavailableError

_MOST_BYTES = 10_000


class Owner(Strict):
    """The contents of the file. `newest`: the archive id of the partition that was archived last; `run`: the run that wrote the file."""

    format: Literal[1] = 1
    outbox_uuid: UUID
    origin: Origin
    newest: UUID | None
    run: UUID


class ArchiveClaim:
    """One run's right to write the archive, which `claim` returns."""

    def __init__(self, files: ArchiveFiles, owner: Owner) -> None:
        self.files = files
        self.outbox_uuid = owner.outbox_uuid
        self.origin = owner.origin
        self._owner = owner

    def require(self) -> None:
        """Raise UnavailableError if another run has claimed the archive meanwhile, ArchiveDamagedError, OSError."""
        found = _read(self.files)
        if found is None or found.run != self._owner.run:
            raise UnavailableError(
                f"another run writes into {self.files.shown}, or {OWNER} there was removed. Retention of one database holds a lock, so "
                "a copy of the database writes (give it another [retention] archive, or none), or this run has slept and lost the lock"
            )

    def advance(self, archive_id: UUID) -> None:
        """Record that this partition is archived and dropped.

        Raises as `require`, so that a run that was suspended does not overwrite the claim of a later run.
        """
        self.require()
        self._owner = self._owner.model_copy(update={"newest": archive_id})
        _write(self.files, self._owner)


def require_owner(
    connection: psycopg.Connection[Any], files: ArchiveFiles, outbox_uuid: UUID, origin: Origin
) -> None:
    """Raise SettingsError if another database owns the archive; ArchiveDamagedError, OSError, psycopg.Error.

    Any database may use an archive without the file: it is new, older than such files, or a person has removed the file.
    """
    owner = _read(files)
    if owner is None:
        return
    # Reads Postgres after the file, because retention commits in Postgres before it writes the file.
    known = {None, *(of.archive_id for of in read_catalogue(connection))}
    because = _not_ours(owner, outbox_uuid, origin)
    if because is None and owner.newest not in known:
        because = "this database lacks the partition that was archived last: it is a copy, or was set back"
    if because is not None:
        raise SettingsError(
            f"{files.shown} is the archive of another database: {because}. Set another [retention] archive, or none. Only if the other one "
            f"is gone for good, or this is where it was moved to, remove {files.shown}/{OWNER}"
        )


def has_owner(files: ArchiveFiles) -> bool:
    """Whether a database has claimed the archive. Raises ArchiveDamagedError, OSError."""
    return _read(files) is not None


def claim(
    connection: psycopg.Connection[Any], files: ArchiveFiles, outbox_uuid: UUID, origin: Origin
) -> ArchiveClaim:
    """Claim for this run an archive that `require_owner` has accepted. Raises OSError, psycopg.Error."""
    newest = max(read_catalogue(connection), key=lambda of: of.archived_at, default=None)
    owner = Owner(
        outbox_uuid=outbox_uuid,
        origin=origin,
        newest=None if newest is None else newest.archive_id,
        run=uuid4(),
    )
    _write(files, owner)
    return ArchiveClaim(files, owner)


def _not_ours(owner: Owner, outbox_uuid: UUID, origin: Origin) -> str | None:
    theirs = owner.origin
    if owner.outbox_uuid != outbox_uuid:
        return f"of outbox {owner.outbox_uuid}"
    if theirs.system_identifier != origin.system_identifier:
        return f"of Postgres server {theirs.system_identifier}, this is {origin.system_identifier}"
    if theirs.database_oid != origin.database_oid:
        return f"of the database with oid {theirs.database_oid}, this one has {origin.database_oid}"
    if theirs.timeline > origin.timeline:
        return f"of timeline {theirs.timeline}, this server is on {origin.timeline}, which was left"
    return None


def _read(files: ArchiveFiles) -> Owner | None:
    try:
        with files.open(OWNER) as source:
            text = source.read(_MOST_BYTES)
    except FileMissingError:
        return None
    try:
        return Owner.model_validate_json(text)
    except ValidationError as error:
        raise ArchiveDamagedError(f"{files.shown}/{OWNER} cannot be read: it was altered or cut") from error


def _write(files: ArchiveFiles, owner: Owner) -> None:
    with files.create(OWNER) as sink:
        sink.write(orjson.dumps(owner.model_dump(), option=orjson.OPT_INDENT_2))
