"""Opens the archive that the settings name. Modules that need the extra `archive` are imported only inside `open_archive` or
`extra_for`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import psycopg

from db.statements import queries
from publisher.archive.files import ArchiveDamagedError, ArchiveFiles
from publisher.archive.folder import ArchiveFolder
from publisher.archive.manifest import Origin
from publisher.archive.owner import require_owner
from service.errors import SchemaError, SettingsError, UnavailableError
from service.kafka.transport import name_unprotected_archive
from service.settings import RetentionSettings

if TYPE_CHECKING:
    from publisher.archive.archive import Archive

_ARCHIVE = queries("publisher.archive", "archive")


def open_archive(
    connection: psycopg.Connection[Any], settings: RetentionSettings, *, writing: bool
) -> "Archive":
    """Return the archive of the outbox; `writing`: to change it, too.

    Raises SettingsError if no archive is set, its folder or bucket does not exist, pyarrow is not installed, or (with `writing`) this
    database is a copy; SchemaError; UnavailableError if the folder or bucket does not answer.
    """
    if not settings.archive:
        raise SettingsError(
            "[retention] archive (OUTBOX_RETENTION__ARCHIVE) is not set here: name the archive, file:///FOLDER or s3://BUCKET/PREFIX"
        )
    name_unprotected_archive(settings)
    with extra_for("the archive cannot be used"):
        from publisher.archive.archive import Archive
    row = connection.execute(_ARCHIVE["identity"]).fetchone()
    if row is None:
        raise SchemaError("outbox.identity has no row: the schema is damaged. Restore it, or create it again")
    outbox_uuid, is_own_server, system_identifier, database_oid, timeline = row
    origin = Origin(system_identifier=system_identifier, database_oid=database_oid, timeline=timeline)
    if writing and not is_own_server:
        raise SettingsError(
            f"outbox {outbox_uuid} was made on another Postgres server: this is a copy, and the archive is the original's. Set another "
            "[retention] archive, or none. After a move, a pg_upgrade or a restore, `publisher resume --from kafka --accept-new-server` "
            "makes this server the outbox's own; then remove owner.json from the archive (docs/archive.md)"
        )
    try:
        files = _files(settings, outbox_uuid)
        if writing:
            require_owner(connection, files, outbox_uuid, origin)
    except (ArchiveDamagedError, OSError) as error:
        raise UnavailableError(f"the archive cannot be used: {error}") from error
    return Archive(files, outbox_uuid, origin)


@contextmanager
def extra_for(problem: str) -> Iterator[None]:
    """Import modules that need pyarrow in the block. Raises SettingsError with `problem` if pyarrow is not installed."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(
            f"{problem}: install the extra `archive` (pip install 'spark-outbox[archive]') ({error})"
        ) from error


def _files(settings: RetentionSettings, outbox_uuid: UUID) -> ArchiveFiles:
    """Return the archive's folder or bucket. Raises SettingsError if it does not exist, OSError."""
    url = urlsplit(settings.archive or "")
    if url.scheme == "file":
        return ArchiveFolder(Path(unquote(url.path)), outbox_uuid)
    from publisher.archive.bucket import ArchiveBucket

    return ArchiveBucket(
        f"{url.netloc}{url.path}", settings.archive_region, settings.archive_endpoint, outbox_uuid
    )
