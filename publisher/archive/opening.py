"""Opens the archive that the settings name. Nothing else of the publisher imports what needs the extra `archive`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import psycopg

from db.statements import queries
from publisher.archive.folder import ArchiveFolder
from service.errors import SchemaError, SettingsError
from service.settings import RetentionSettings

if TYPE_CHECKING:
    from publisher.archive.archive import Archive

_ARCHIVE = queries("publisher.archive", "archive")


def open_archive(
    connection: psycopg.Connection[Any], settings: RetentionSettings, *, writing: bool
) -> "Archive":
    """Return the archive of the outbox; `writing`: also to change it.

    Raises SettingsError where none is set, its folder is not there, pyarrow is not installed, or a copied database would change it.
    """
    if not settings.archive:
        raise SettingsError(
            "[retention] archive (OUTBOX_RETENTION__ARCHIVE) is not set here: name the archive, file:///FOLDER"
        )
    try:
        from publisher.archive.archive import Archive
    except ImportError as error:
        raise SettingsError(
            f"the archive cannot be used: install the extra `archive` (pip install 'spark-outbox[archive]') ({error})"
        ) from error
    row = connection.execute(_ARCHIVE["identity"]).fetchone()
    if row is None:
        raise SchemaError("outbox.identity has no row: the schema is damaged. Restore it, or create it again")
    outbox_uuid, is_own_server = row
    if writing and not is_own_server:
        raise SettingsError(
            f"outbox {outbox_uuid} was made on another Postgres server: this is a copy, and the archive is the original's. Set another "
            "[retention] archive, or none; after a move `publisher resume` makes this server its own"
        )
    return Archive(ArchiveFolder(Path(unquote(urlsplit(settings.archive).path)), outbox_uuid), outbox_uuid)
