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
from publisher.archive.verification import verified
from publisher.archive.writing import archive_partition, drop
from publisher.protocol.stored_row import StoredRow


class Archive:
    """Reads the partitions that `outbox.archived` names, and no others.

    Raises ArchiveDamagedError, and OSError if the storage fails.
    """

    def __init__(self, files: ArchiveFiles, outbox_uuid: UUID, origin: Origin) -> None:
        """`origin`: the database that this process is connected to."""
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
        """Check again that this database owns the archive, before files are removed. Raises SettingsError, ArchiveDamagedError, OSError."""
        require_owner(connection, self.files, self.outbox_uuid, self.origin)

    def manifest(self, of: ArchivedPartition) -> Manifest:
        """Return a partition's manifest, verified with its digest in Postgres."""
        name = manifest_name(of.partition, of.manifest_sha256.hex())
        with self.files.open(name) as source:
            text = source.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES or digest_of(text) != of.manifest_sha256:
            raise ArchiveDamagedError(
                f"{self.files.shown}/{name} is not the manifest that was recorded: it was altered"
            )
        found = decode(text)
        # The digest proves that this is the recorded manifest; this check, that the right manifest was recorded.
        if (found.outbox_uuid, found.partition, found.archive_id) != (
            self.outbox_uuid,
            of.partition,
            of.archive_id,
        ):
            raise ArchiveDamagedError(f"{self.files.shown}/{name} is the manifest of something else")
        return found

    @contextmanager
    def open(self, file: DataFile) -> Iterator[BinaryIO]:
        """Open a file of a manifest, verified with its digest: only bytes whose digest was checked are parsed."""
        with self.files.open(file.name) as source, verified(source, file) as found:
            yield found

    def rows(
        self, of: ArchivedPartition, after: Cursor, last: int, keys: Sequence[str] | None = None
    ) -> Iterator[tuple[list[StoredRow], Cursor]]:
        """Yield the rows after a cursor up to batch `last`, one row group at a time, each with the cursor at its end. `keys`: only the rows
        of these session keys, None for all.
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
        """Return the first batch committed at `since` or later and the last one committed before `until`; an empty range if there is none.

        The range contains every batch committed between these times, even if the clock stepped back in between.
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
    """Archives partitions until another run claims the archive. Raises UnavailableError, ArchiveDamagedError, OSError, psycopg.Error."""

    def __init__(self, claim: ArchiveClaim) -> None:
        self._claim = claim

    def write(self, connection: psycopg.Connection[Any], partition: str, first: int, last: int) -> Manifest:
        """Archive the batches `first` to `last` inclusive, a partition. The caller's transaction holds the partition from here on."""
        return archive_partition(connection, self._claim, partition, first, last)

    def drop(self, connection: psycopg.Connection[Any], manifest: Manifest) -> None:
        """Drop the partition that `write` has archived, in the same transaction."""
        drop(connection, self._claim, manifest)

    def dropped(self, manifest: Manifest) -> None:
        """Record in the owner's file that the partition is archived and dropped. Call after that transaction has committed."""
        self._claim.advance(manifest.archive_id)
