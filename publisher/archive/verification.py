"""Compares an archived data file with its manifest: whole after it was written, by its digest before each later read.

archive.py checks the manifest itself.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

import psycopg

from db.statements import queries
from publisher.archive.files import ArchiveDamagedError, ArchiveFiles
from publisher.archive.manifest import DataFile
from publisher.archive.parquet import Contents, row_groups

_ARCHIVE = queries("publisher.archive", "archive")

_READ_BYTES = 1 << 20
_IN_MEMORY_BYTES = 64 << 20

Connection = psycopg.Connection[Any]


def verify(files: ArchiveFiles, file: DataFile, connection: Connection) -> None:
    """Read a written file back.

    Raises ArchiveDamagedError if its bytes or rows are not those written, OSError, psycopg.Error.
    """
    with files.open(file.name) as source, verified(source, file, connection) as found:
        contents = Contents()
        for table in row_groups(found):
            contents.add(table)
            connection.execute(_ARCHIVE["alive"])
    wanted = file.rows, file.sessions, file.outputs, file.output_bytes
    if contents.counts() != wanted or contents.digest() != file.rows_sha256:
        raise ArchiveDamagedError(
            f"{files.shown}/{file.name} is not what was written: other values, or rows, sessions, outputs and bytes {contents.counts()} "
            f"instead of {wanted}"
        )


@contextmanager
def verified(source: BinaryIO, file: DataFile, connection: Connection | None = None) -> Iterator[BinaryIO]:
    """Compare an open file with its digest, and yield it at its beginning. A file that can be read only once is copied.

    Raises ArchiveDamagedError, OSError, psycopg.Error.
    """
    with ExitStack() as closing:
        found = source
        if not source.seekable():
            found = cast("BinaryIO", closing.enter_context(SpooledTemporaryFile(_IN_MEMORY_BYTES)))
        digest, size, reads = sha256(), 0, 0
        while data := source.read(_READ_BYTES):
            digest.update(data)
            size, reads = size + len(data), reads + 1
            if size > file.bytes:
                break
            if found is not source:
                found.write(data)
            if connection is not None and reads % 64 == 0:
                connection.execute(_ARCHIVE["alive"])
        if (size, digest.hexdigest()) != (file.bytes, file.sha256):
            raise ArchiveDamagedError(
                f"{file.name} is not the file that its manifest names: it was altered or cut"
            )
        found.seek(0, os.SEEK_SET)
        yield found
