"""Archives one partition, which the caller's transaction holds. archive/__init__.py lists the steps."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import psycopg

from contract.cursor import Cursor
from db.migrate import HEAD
from db.statements import queries
from publisher.archive.files import ArchiveDamagedError, ArchiveFiles, data_name, partition_of
from publisher.archive.manifest import DataFile, Manifest, day_of, digest_of, name_of
from publisher.archive.owner import ArchiveClaim
from publisher.archive.parquet import Contents, FileWriter, RowGroup
from publisher.archive.verification import verify
from publisher.protocol.chunk_limits import FetchSize
from service.lifecycle.fault_points import reach

_ARCHIVE = queries("publisher.archive", "archive")

_LISTED_ROWS = 10_000
_FETCHED_BYTES = 8_000_000
_FILE_BYTES = 1_000_000_000
"""A file that has reached this many bytes gets no more rows: some readers must copy a file whole to read it."""

Connection = psycopg.Connection[Any]


def archive_partition(
    connection: Connection, claim: ArchiveClaim, partition: str, first: int, last: int
) -> Manifest:
    """Write the files and the manifest of the batches from `first` to `last`, and verify them by reading them back.

    `connection` is in the transaction that will drop the partition. This call locks the partition.
    Raises ArchiveDamagedError if the files differ from the rows in Postgres, UnavailableError if another run writes, OSError,
    psycopg.Error.
    """
    held = connection.execute(_ARCHIVE["hold"], {"partition": partition}).fetchone()
    remove_left(connection, claim, partition)
    files: list[DataFile] = []
    groups = _groups(_rows(connection, first, last))
    following = next(groups, None)
    while following is not None:
        day = following[0]
        name = data_name(day, partition, len(files))
        with claim.files.create(name) as sink, FileWriter(sink) as writer:
            while following is not None and following[0] == day and writer.size < _FILE_BYTES:
                writer.write(following[1].table())
                reach("archive.during_file")
                # Keeps Postgres from ending the idle transaction, and detects a lost connection.
                connection.execute(_ARCHIVE["alive"])
                following = next(groups, None)
            size, digest = writer.close()
        file = described(name, size, digest, writer.contents)
        verify(claim.files, file, connection)
        files.append(file)
        reach("archive.after_file")
    manifest = Manifest(
        outbox_uuid=claim.outbox_uuid,
        archive_id=uuid4(),
        partition=partition,
        from_batch=first,
        to_batch=last,
        schema_revision=HEAD,
        archived_at=_now(connection),
        origin=claim.origin,
        files=tuple(files),
    )
    written = manifest.total("rows"), manifest.total("sessions"), manifest.total("outputs")
    if held != written:
        raise ArchiveDamagedError(
            f"outbox.{partition} has {held} rows, sessions and outputs, and {written} were found for the archive: rows have a lane that no "
            "epoch has. `publisher audit` names them"
        )
    write_manifest(claim.files, manifest)
    reach("archive.after_manifest")
    return manifest


def drop(connection: Connection, claim: ArchiveClaim, manifest: Manifest) -> None:
    """Record the manifest and drop its partition, in the transaction that holds the partition.

    Raises UnavailableError if another run writes (it may have removed files), ArchiveDamagedError, OSError, psycopg.Error.
    """
    claim.require()
    connection.execute(
        _ARCHIVE["drop"],
        {
            "partition": manifest.partition,
            "archive_id": manifest.archive_id,
            "manifest_sha256": digest_of(manifest.encode()),
            "rows": manifest.total("rows"),
            "sessions": manifest.total("sessions"),
            "outputs": manifest.total("outputs"),
            "output_bytes": manifest.total("output_bytes"),
        },
    )


def described(name: str, size: int, digest: str, contents: Contents) -> DataFile:
    """Return the manifest's entry for a written file."""
    assert contents.first_batch is not None
    assert contents.committed_from is not None
    assert contents.committed_to is not None
    return DataFile(
        name=name,
        bytes=size,
        sha256=digest,
        rows_sha256=contents.digest(),
        rows=contents.rows,
        sessions=contents.sessions,
        outputs=contents.outputs,
        output_bytes=contents.output_bytes,
        first_batch=contents.first_batch,
        last_batch=contents.last_batch,
        committed_from=contents.committed_from,
        committed_to=contents.committed_to,
    )


def write_manifest(files: ArchiveFiles, manifest: Manifest) -> None:
    """Write a manifest and read it back. Its files must be written before. Raises ArchiveDamagedError, OSError."""
    name, text = name_of(manifest), manifest.encode()
    with files.create(name) as sink:
        sink.write(text)
    with files.open(name) as source:
        if source.read(len(text) + 1) != text:
            raise ArchiveDamagedError(f"{files.shown}/{name}: what was read back is not what was written")


def remove_left(connection: Connection, claim: ArchiveClaim, partition: str) -> None:
    """Remove the files of a partition that `connection` holds.

    Raises UnavailableError if another run writes, ArchiveDamagedError, OSError, psycopg.Error.
    """
    found = [name for name in claim.files.names() if partition_of(name) == partition]
    # None of the files is in use: nobody else was archiving the held partition, and later files have other names.
    connection.execute(_ARCHIVE["alive"])
    claim.require()
    claim.files.remove(found)


def _rows(connection: Connection, first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows in order, each with its estimated size as the last column. Short statements fetch them, with a limit of bytes each."""
    at, size = Cursor(first - 1), FetchSize()
    with connection.cursor(binary=True) as cursor:
        while True:
            batch, key = at.exclusive_bound()
            cursor.execute(
                _ARCHIVE["row_keys"],
                {"from_batch": batch, "from_key": key, "to_batch": last, "rows": _LISTED_ROWS},
                prepare=False,
            )
            row_keys = cursor.fetchall()
            if not row_keys:
                return
            at = Cursor(*row_keys[-1])
            while row_keys:
                wanted = row_keys[: size.rows(len(row_keys), _FETCHED_BYTES)]
                cursor.execute(
                    _ARCHIVE["rows"],
                    {
                        "batch_ids": [batch_id for batch_id, _ in wanted],
                        "session_keys": [session_key for _, session_key in wanted],
                        "from_batch": wanted[0][0],
                        "to_batch": wanted[-1][0],
                        "bytes": _FETCHED_BYTES,
                        "expansion": size.expansion,
                    },
                    prepare=False,
                )
                found = cursor.fetchall()
                if [row[:2] for row in found] != wanted[: len(found)] or not found:
                    raise ArchiveDamagedError(
                        f"rows of batches {wanted[0][0]} to {wanted[-1][0]} are gone while they are held"
                    )
                values = sum(len(value) for row in found for value in row[15] if value is not None)
                size.fetched(len(found), values, sum(row[-1] for row in found))
                yield from found
                row_keys = row_keys[len(found) :]


def _groups(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[str, RowGroup]]:
    """Yield the row groups, each with the day of its rows."""
    day, group = "", RowGroup()
    for row in rows:
        if row[2] is None:
            raise ArchiveDamagedError(
                f"batch {row[0]} has rows and no ledger row: `publisher audit` says more. Nothing of it is archived"
            )
        its_day = day_of(row[2])
        if group.rows and (its_day != day or group.is_full):
            yield day, group
            group = RowGroup()
        day = its_day
        group.add(row[:-1], row[-1])
    if group.rows:
        yield day, group


def _now(connection: Connection) -> datetime:
    row = connection.execute(_ARCHIVE["now"]).fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment
