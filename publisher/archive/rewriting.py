"""Erases session keys from the archive: writes files and a manifest without them, updates the row in Postgres, removes the old files.

After a kill before the commit, the old files are in force; after a kill behind it, the new ones. The next erasure removes the files that
are not in force.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from db.statements import queries
from publisher.archive.archive import Archive
from publisher.archive.catalogue import ArchivedPartition, read_catalogue
from publisher.archive.files import ArchiveDamagedError, data_name, partition_of
from publisher.archive.manifest import DataFile, Manifest, digest_of, name_of
from publisher.archive.parquet import FileWriter, matching, row_groups, rows_of, without
from publisher.archive.verification import verify
from publisher.archive.writing import described, write_manifest
from publisher.protocol.stored_row import StoredRow

_ARCHIVE = queries("publisher.archive", "archive")

Connection = psycopg.Connection[Any]


class ErasedRow(NamedTuple):
    """`remembered`: as `outbox.erased` takes it. The others have an entry for each output. No values: all erased rows of a partition are in
    memory together."""

    remembered: dict[str, Any]
    topics: list[str]
    keys: list[bytes | None] | None
    partitions: list[int | None] | None


@dataclass(slots=True)
class ArchiveRewriting:
    """A partition's archive without some rows. `erased`: {session key: these rows}."""

    manifest: Manifest
    erased: dict[str, list[ErasedRow]] = field(default_factory=dict)


def count_keys(archive: Archive, of: ArchivedPartition, keys: Sequence[str]) -> dict[str, int]:
    """Return how many rows of each session key a partition's archive has. Raises ArchiveDamagedError, OSError."""
    found: dict[str, int] = {}
    for file in archive.manifest(of).files:
        with archive.open(file) as source:
            for rows, _ in matching(source, keys):
                for row in rows:
                    found[row.session_key] = found.get(row.session_key, 0) + 1
    return found


def write_without(
    connection: Connection, archive: Archive, of: ArchivedPartition, keys: Sequence[str]
) -> ArchiveRewriting:
    """Write a partition's archive without the keys. It is not in force yet. Raises ArchiveDamagedError, OSError, psycopg.Error."""
    old = archive.manifest(of)
    files: list[DataFile] = []
    found: dict[str, list[ErasedRow]] = {}
    for number, file in enumerate(old.files):
        with archive.open(file) as source:
            has_some = any(rows for rows, _ in matching(source, keys))
        if not has_some:
            files.append(file)
            continue
        name = data_name(file.name.partition("/")[0].removeprefix("day="), of.partition, number)
        with (
            archive.open(file) as source,
            archive.files.create(name) as sink,
            FileWriter(sink) as writer,
        ):
            for table in row_groups(source):
                kept, erased = without(table, keys)
                writer.write(kept)
                for row in rows_of(erased):
                    of_key = found.setdefault(row.session_key, [])
                    of_key.append(ErasedRow(_remembered(row), row.topics, row.keys, row.partitions))
            size, digest = writer.close()
        if not writer.contents.rows:
            archive.files.remove([name])
            continue
        new = described(name, size, digest, writer.contents)
        verify(archive.files, new, connection)
        files.append(new)
    manifest = old.model_copy(update={"files": tuple(files)})
    if found:
        write_manifest(archive.files, manifest)
    return ArchiveRewriting(manifest, found)


def _remembered(row: StoredRow) -> dict[str, Any]:
    """Return a row for `outbox.erased`."""
    return {
        "session_key": row.session_key,
        "batch_id": row.batch_id,
        "lane": row.lane,
        "revision": row.revision,
        "topic_ids": row.session_topic_ids,
        "partitions": row.session_partitions,
        "ends": row.session_ends,
        "outputs": row.session_outputs,
        "output_bytes": row.output_bytes(),
        "topics": sorted(set(row.topics)),
        "was_parked": row.was_parked,
    }


def put_in_force(connection: Connection, of: ArchivedPartition, rewriting: ArchiveRewriting) -> list[int]:
    """Replace the manifest in the caller's transaction. Returns the replays that need the old files; if there are any, nothing has changed.

    Raises ArchiveDamagedError if the archive has another manifest by now, psycopg.Error.
    """
    erased = [row.remembered for rows in rewriting.erased.values() for row in rows]
    try:
        (replays,) = connection.execute(
            _ARCHIVE["rewrite"],
            {
                "partition": of.partition,
                "old_manifest": of.manifest_sha256,
                "new_manifest": digest_of(rewriting.manifest.encode()),
                "erased": Jsonb(erased),
            },
        ).fetchone() or ([],)
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise ArchiveDamagedError(f"{error.diag.message_primary}. Run the command again") from error
    return list(replays)


def remove_garbage(connection: Connection, archive: Archive) -> list[str]:
    """Remove files of the partitions that the outbox knows, if no manifest in force names them; return the files of other partitions.

    `connection` is in a transaction that keeps retention, which might be writing, away. Files of other partitions stay, because this
    database may be an older copy. Raises SettingsError if another database owns the archive by now, OSError. If a partition's manifest
    cannot be read, the partition's files stay, and ArchiveDamagedError is raised after the removal.
    """
    known = {name for (name,) in connection.execute(_ARCHIVE["partitions"])}
    named: set[str] = set()
    damage: ArchiveDamagedError | None = None
    for of in read_catalogue(connection):
        try:
            named |= named_by(archive, of)
            known.add(of.partition)
        except ArchiveDamagedError as error:
            damage = error
    unnamed = [name for name in archive.files.names() if name not in named]
    archive.require_owner(connection)
    archive.files.remove([name for name in unnamed if partition_of(name) in known])
    if damage is not None:
        raise damage
    return [name for name in unnamed if partition_of(name) not in known]


def named_by(archive: Archive, of: ArchivedPartition) -> set[str]:
    """Return the manifest of a partition and the files that it names. Raises ArchiveDamagedError, OSError."""
    manifest = archive.manifest(of)
    return {name_of(manifest), *(file.name for file in manifest.files)}
