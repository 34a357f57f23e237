"""Reads which partitions are archived, from `outbox.archived`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from db.statements import queries

_ARCHIVE = queries("publisher.archive", "archive")


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """One row of `outbox.archived`; batches inclusive."""

    partition: str
    from_batch: int
    to_batch: int
    archive_id: UUID
    manifest_sha256: bytes
    rows: int
    sessions: int
    outputs: int
    output_bytes: int
    erased_rows: int
    archived_at: datetime


def read_catalogue(
    connection: psycopg.Connection[Any], first: int = 0, last: int | None = None
) -> list[ArchivedPartition]:
    """Return the archived partitions with any batch from `first` to `last`, oldest first. Raises psycopg.Error."""
    rows = connection.execute(_ARCHIVE["catalogue"], {"from_batch": first, "to_batch": last})
    return [ArchivedPartition(*row) for row in rows]


def archive_id_at(connection: psycopg.Connection[Any], batch_id: int) -> UUID | None:
    """Return the archive id of the partition that had this batch, None if the batch is not archived. Raises psycopg.Error."""
    found = read_catalogue(connection, batch_id, batch_id)
    return found[0].archive_id if found else None
