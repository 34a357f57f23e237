"""Defines the names of an archive's files, and the operations of its storage: a folder (folder.py) or a bucket (bucket.py).

A name is relative to the outbox's folder and must have one of the forms below, so that no name in a manifest leads elsewhere.
"""

import re
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import BinaryIO, Protocol
from uuid import uuid4

from service.errors import ContinuityError

OWNER = "_manifests/owner.json"
"""The file that names the database that owns the archive."""

_DATA = re.compile(r"day=\d{4}-\d{2}-\d{2}/session_output_p\d{8}-\d{4}-[0-9a-f]{16}\.parquet", re.ASCII)
_MANIFEST = re.compile(r"_manifests/session_output_p\d{8}-[0-9a-f]{16}\.json", re.ASCII)
_WRITING = re.compile(r"_writing/session_output_p\d{8}(-\d{4}(-[0-9a-f]{16})?)?\.tmp", re.ASCII)


class ArchiveDamagedError(ContinuityError):
    """The archive differs from the outbox's record of it."""


class FileMissingError(ArchiveDamagedError):
    """The archive has no file of this name."""


class ArchiveFiles(Protocol):
    """The files of one outbox's archive. Every method raises OSError if the storage fails, with what to do about it."""

    shown: str
    """The folder or bucket, for messages."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Write a file, and replace any file of the same name. After the block the file is complete and durable, and has its name.

        After an error in the block, no incomplete file has the name. After an error behind the block, the file may or may not be there.
        """

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Read a file from its beginning. Raises FileMissingError, and ArchiveDamagedError if it is not a plain file."""

    def names(self) -> list[str]:
        """Return the names of the files that belong to partitions, sorted. Files with names of other forms are left out."""

    def remove(self, names: list[str]) -> None:
        """Remove files, durably."""


def data_name(day: str, partition: str, number: int) -> str:
    """Return a new name for a file with rows. Names never repeat, so a process that removes its own file cannot remove another's."""
    return f"day={day}/{partition}-{number:04d}-{uuid4().hex[:16]}.parquet"


def manifest_name(partition: str, digest: str) -> str:
    """Return the name of a manifest; `digest` in hexadecimal."""
    return f"_manifests/{partition}-{digest[:16]}.json"


def writing_name(name: str) -> str:
    """Return the name of a file while it is written to a storage that cannot rename. No query reads a file of this name."""
    return f"_writing/{PurePosixPath(name).stem}.tmp"


def is_data(name: str) -> bool:
    """Whether this is the name of a file with rows."""
    return _DATA.fullmatch(name) is not None


def partition_of(name: str) -> str:
    """Return the partition that a file belongs to."""
    return name.partition("/")[2][: len("session_output_p00000000")]


def is_listed(name: str) -> bool:
    """Whether this is the name of a file that belongs to a partition."""
    return any(form.fullmatch(name) for form in (_DATA, _MANIFEST, _WRITING))


def require_readable(name: str) -> None:
    """Raise ArchiveDamagedError unless an archive can have a file of this name. The name may come from a file that others wrote."""
    if name != OWNER and not is_listed(name):
        raise ArchiveDamagedError(f"{name!r} is no name of a file in an archive")


def require_writable(name: str) -> None:
    """Raise ValueError unless this process writes files with such names."""
    if name != OWNER and not any(form.fullmatch(name) for form in (_DATA, _MANIFEST)):
        raise ValueError(f"{name!r} is no name of a file in an archive")
