"""Is the archive complete and unaltered? Every byte is digested, every row counted, and both are compared with what Postgres says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from db.statements import queries
from publisher.archive.archive import Archive
from publisher.archive.catalogue import ArchivedPartition, read_catalogue
from publisher.archive.files import ArchiveDamagedError
from publisher.archive.manifest import name_of
from publisher.archive.parquet import Contents, row_groups

_ARCHIVE = queries("publisher.archive", "archive")

Advance = Callable[[int], None]
"""Called with the number of rows that were checked since the last call."""


@dataclass(slots=True)
class ArchiveFindings:
    """The findings, a line each. `garbage`: files that no manifest in force names."""

    partitions: int = 0
    rows: int = 0
    damaged: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    garbage: list[str] = field(default_factory=list)


def check_archive(
    connection: psycopg.Connection[Any], archive: Archive, advance: Advance = lambda _: None
) -> ArchiveFindings:
    """Check everything. `connection` holds retention off. Raises OSError, psycopg.Error."""
    found, named = ArchiveFindings(), set[str]()
    for of in read_catalogue(connection):
        try:
            named |= _check_partition(connection, archive, of, found, advance)
        except ArchiveDamagedError as error:
            found.damaged.append(f"batches {of.from_batch} to {of.to_batch}: {error}")
    for first, last in connection.execute(_ARCHIVE["dropped"]):
        found.gaps.append(f"batches {first} to {last} were dropped without an archive")
    # Where a manifest cannot be read, nobody knows which files are its own.
    if not found.damaged:
        found.garbage = [name for name in archive.files.names() if name not in named]
    return found


def _check_partition(
    connection: psycopg.Connection[Any],
    archive: Archive,
    of: ArchivedPartition,
    found: ArchiveFindings,
    advance: Advance,
) -> set[str]:
    manifest = archive.manifest(of)
    counts = [0, 0, 0, 0]
    for file in manifest.files:
        contents = Contents()
        with archive.open(file) as source:
            for table in row_groups(source):
                contents.add(table)
        if contents.digest() != file.rows_sha256:
            raise ArchiveDamagedError(f"{file.name}: its rows are not those that were archived")
        counts = [a + b for a, b in zip(counts, contents.counts(), strict=True)]
        advance(contents.rows)
    recorded = [of.rows, of.sessions, of.outputs, of.output_bytes]
    if counts != recorded:
        raise ArchiveDamagedError(
            f"its files hold {counts} rows, sessions, outputs and bytes, and {recorded} were recorded"
        )
    found.partitions += 1
    found.rows += of.rows
    ledger = connection.execute(_ARCHIVE["ledger"], {"from_batch": of.from_batch, "to_batch": of.to_batch})
    sessions, *others = ledger.fetchone() or (None,)
    if sessions is not None and [sessions, *others] != counts[1:]:
        found.miscounted.append(
            f"batches {of.from_batch} to {of.to_batch}: the ledger says {[sessions, *others]} sessions, outputs and bytes, without "
            f"what was erased, and the archive has {counts[1:]}"
        )
    return {name_of(manifest), *(file.name for file in manifest.files)}
