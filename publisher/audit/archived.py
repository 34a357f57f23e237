"""`publisher audit --archive`: checks that the archive is complete and unaltered.

Digests every byte, counts every row, and compares both with the records in Postgres. Needs the extra `archive`.
"""

from collections.abc import Callable
from typing import Any

import psycopg

from db.statements import queries
from publisher.archive.archive import Archive
from publisher.archive.catalogue import ArchivedPartition, read_catalogue
from publisher.archive.files import ArchiveDamagedError
from publisher.archive.manifest import Manifest, name_of
from publisher.archive.parquet import Contents, row_groups
from publisher.audit.findings import Check

_ARCHIVE = queries("publisher.archive", "archive")

Advance = Callable[[int], None]
"""Called with the number of rows that were checked since the last call."""


def check_archived(
    connection: psycopg.Connection[Any], archive: Archive, phase: Callable[[str, int], Advance]
) -> tuple[list[Check], int]:
    """Return the checks and the number of rows in undamaged partitions. `connection` must hold off retention.

    Raises OSError, psycopg.Error.
    """
    intact = Check("archive_intact", "Is every archived partition there and unaltered?")
    counts = Check("archive_counts", "Does the archive hold what the ledger counts?")
    gaps = Check("archive_gaps", "Since retention began to archive, has it archived all that it dropped?")
    garbage = Check("archive_garbage", "Are there files that no manifest in force names?", fails=False)
    partitions = read_catalogue(connection)
    advance = phase("archive", sum(of.rows for of in partitions))
    rows, named = 0, set[str]()
    for of in partitions:
        try:
            named |= _check_partition(connection, archive, of, counts, advance)
            rows += of.rows
        except ArchiveDamagedError as error:
            intact.add(f"batches {of.from_batch} to {of.to_batch}: {error}")
    for first, last in connection.execute(_ARCHIVE["dropped"]):
        gaps.add(f"batches {first} to {last} were dropped without an archive")
    # The files of an unreadable manifest are unknown.
    if not intact.count:
        for name in archive.files.names():
            if name not in named:
                garbage.add(name)
    return [intact, counts, gaps, garbage], rows


def _check_partition(
    connection: psycopg.Connection[Any],
    archive: Archive,
    of: ArchivedPartition,
    counts: Check,
    advance: Advance,
) -> set[str]:
    """Check one partition and its ledger counts; return the names of its manifest and of the files in it."""
    manifest = archive.manifest(of)
    held = _held(archive, manifest, advance)
    recorded = [of.rows, of.sessions, of.outputs, of.output_bytes]
    if held != recorded:
        raise ArchiveDamagedError(
            f"its files hold {held} rows, sessions, outputs and bytes, and {recorded} were recorded"
        )
    ledger = connection.execute(_ARCHIVE["ledger"], {"from_batch": of.from_batch, "to_batch": of.to_batch})
    sessions, *others = ledger.fetchone() or (None,)
    if sessions is not None and [sessions, *others] != held[1:]:
        counts.add(
            f"batches {of.from_batch} to {of.to_batch}: the ledger says {[sessions, *others]} sessions, outputs and bytes without "
            f"erased rows, the archive has {held[1:]}"
        )
    return {name_of(manifest), *(file.name for file in manifest.files)}


def _held(archive: Archive, manifest: Manifest, advance: Advance) -> list[int]:
    """Return how many rows, sessions, outputs and bytes of values the files hold. Raises ArchiveDamagedError, OSError."""
    held = [0, 0, 0, 0]
    for file in manifest.files:
        contents = Contents()
        with archive.open(file) as source:
            for table in row_groups(source):
                contents.add(table)
        if contents.digest() != file.rows_sha256:
            raise ArchiveDamagedError(f"{file.name}: its rows are not the archived ones")
        held = [a + b for a, b in zip(held, contents.counts(), strict=True)]
        advance(contents.rows)
    return held
