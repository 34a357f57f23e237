"""Reads and writes the archive of one outbox, for retention, audits, replays and erasures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, BinaryIO
from uuid import UUID

import psycopg

from contract.cursor import Cursor
from publisher.archive.catalogue import ArchivedPartition
from publisher.archive.files import ArchiveDamagedError, ArchiveFiles, manifest_name
from publisher.archive.manifest import MOST_BYTES, DataFile, Manifest, Origin, decode, digest_of
from publisher.archive.owner import ArchiveClaim, claim, has_owner, require_owner
from publisher.archive.parquet import matching, row_groups
from publisher.archive.writing import archive_partition, drop, proven
from publisher.protocol.stored_row import StoredRow


class Archive:
    """Reads the partitions that `outbox.archived` names, and nothing else.

    Raises ArchiveDamagedError, and OSError where the storage fails.
    """

    def __init__(self, files: ArchiveFiles, outbox_uuid: UUID, origin: Origin) -> None:
        """`origin`: the database that is connected."""
        self.files = files
        self.outbox_uuid = outbox_uuid
        self.origin = origin

    def claimed(self, connection: psycopg.Connection[Any]) -> "ArchiveWriter":
        """Claim the archive for this run. Raises OSError, psycopg.Error."""
        return ArchiveWriter(claim(connection, self.files, self.outbox_uuid, self.origin))

    def is_claimed(self) -> bool:
        """Whether a database has claimed the archive, which shows that it is an archive. Raises ArchiveDamagedError, OSError."""
        return has_owner(self.files)

    def require_owner(self, connection: psycopg.Connection[Any]) -> None:
        """Check again which database owns it, before files are removed. Raises SettingsError, ArchiveDamagedError, OSError."""
        require_owner(connection, self.files, self.outbox_uuid, self.origin)

    def manifest(self, of: ArchivedPartition) -> Manifest:
        """Return a partition's manifest, proven by its digest in Postgres."""
        name = manifest_name(of.partition, of.manifest_sha256.hex())
        with self.files.open(name) as source:
            text = source.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES or digest_of(text) != of.manifest_sha256:
            raise ArchiveDamagedError(
                f"{self.files.shown}/{name} is not the manifest that was recorded: it was altered"
            )
        found = decode(text)
        # A digest proves whose it is; this proves that the recording was right.
        if (found.outbox_uuid, found.partition, found.archive_id) != (
            self.outbox_uuid,
            of.partition,
            of.archive_id,
        ):
            raise ArchiveDamagedError(f"{self.files.shown}/{name} is the manifest of something else")
        return found

    @contextmanager
    def open(self, file: DataFile) -> Iterator[BinaryIO]:
        """Open a file of a manifest, proven by its digest: only bytes that were hashed are parsed."""
        with self.files.open(file.name) as source, proven(source, file) as found:
            yield found

    def rows(
        self, of: ArchivedPartition, after: Cursor, last: int, keys: Sequence[str] | None = None
    ) -> Iterator[tuple[list[StoredRow], Cursor]]:
        """Yield the rows after a cursor up to batch `last`, of these session keys (None: of all), a row group at a time, and the cursor
        after the group.
        """
        for file in self.manifest(of).files:
            if file.last_batch < after.batch_id or file.first_batch > last:
                continue
            with self.open(file) as source:
                for rows, end in matching(source, keys):
                    if Cursor(*end) > after:
                        yield (
                            [
                                row
                                for row in rows
                                if row.batch_id <= last and after < Cursor(row.batch_id, row.session_key)
                            ],
                            min(Cursor(*end), Cursor(last)),
                        )

    def committed(
        self, partitions: Sequence[ArchivedPartition], since: datetime | None, until: datetime | None
    ) -> tuple[int, int]:
        """Return the first batch committed since a time and the last one before another; an empty range where there is none.

        A clock that stepped back leaves no batch of the time out.
        """
        files = [file for of in partitions for file in self.manifest(of).files]
        first, last = (1, files[-1].last_batch) if files else (1, 0)
        if since is not None:
            later = (file for file in files if file.committed_to >= since)
            first = self._edge(next(later, None), lambda at: at >= since, min) or last + 1
        if until is not None:
            earlier = (file for file in reversed(files) if file.committed_from < until)
            last = self._edge(next(earlier, None), lambda at: at < until, max) or 0
        return first, last

    def _edge(
        self, file: DataFile | None, wanted: Callable[[datetime], bool], edge: Callable[..., int]
    ) -> int | None:
        if file is None:
            return None
        with self.open(file) as source:
            return edge(
                batch_id
                for table in row_groups(source, ["batch_id", "committed_at"])
                for batch_id, at in zip(*(column.to_pylist() for column in table.columns), strict=True)
                if wanted(at)
            )


class ArchiveWriter:
    """Archives partitions, as long as no other run does. Raises UnavailableError, ArchiveDamagedError, OSError, psycopg.Error."""

    def __init__(self, claim: ArchiveClaim) -> None:
        self._claim = claim

    def write(self, connection: psycopg.Connection[Any], partition: str, first: int, last: int) -> Manifest:
        """Archive a partition, which the caller's transaction holds from here on; batches inclusive."""
        return archive_partition(connection, self._claim, partition, first, last)

    def drop(self, connection: psycopg.Connection[Any], manifest: Manifest) -> None:
        """Drop what `write` has archived, in the same transaction."""
        drop(connection, self._claim, manifest)

    def dropped(self, manifest: Manifest) -> None:
        """Record in the archive that it has the partition, after that transaction."""
        self._claim.advance(manifest.archive_id)
