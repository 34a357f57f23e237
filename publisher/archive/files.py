"""Defines the names of an archive's files, and what their storage can do: a folder (folder.py) or a bucket (bucket.py).

A name is relative to the outbox's folder, and has one of the forms below; so no name in a manifest leads elsewhere.
"""

import re
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import BinaryIO, Protocol
from uuid import uuid4

from service.errors import ContinuityError

OWNER = "_manifests/owner.json"
"""The file that says whose archive it is."""

_DATA = re.compile(r"day=\d{4}-\d{2}-\d{2}/session_output_p\d{8}-\d{4}-[0-9a-f]{16}\.parquet", re.ASCII)
_MANIFEST = re.compile(r"_manifests/session_output_p\d{8}-[0-9a-f]{16}\.json", re.ASCII)
_WRITING = re.compile(r"_writing/session_output_p\d{8}(-\d{4}(-[0-9a-f]{16})?)?\.tmp", re.ASCII)


class ArchiveDamagedError(ContinuityError):
    """The archive is not what the outbox has recorded of it."""


class FileMissingError(ArchiveDamagedError):
    """The archive has no file of that name."""


class ArchiveFiles(Protocol):
    """The files of one outbox's archive. Every method raises OSError where the storage fails, with what to do about it."""

    shown: str
    """The folder or bucket, for messages."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Write a file; it replaces one of the same name. After the block it is whole, durable and has its name.

        After an error in the block no half of it has the name. After another one, the file may be there or not.
        """

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Read a file from its beginning. Raises FileMissingError, ArchiveDamagedError where it is no plain file."""

    def names(self) -> list[str]:
        """Return the files that are of a partition, sorted; a file with another form of name is left out."""

    def remove(self, names: list[str]) -> None:
        """Remove files, durably."""


def data_name(day: str, partition: str, number: int) -> str:
    """Return a new name for a file with rows. No two files have the same one, so a process that removes its file removes no other's."""
    return f"day={day}/{partition}-{number:04d}-{uuid4().hex[:16]}.parquet"


def manifest_name(partition: str, digest: str) -> str:
    """Return the name of a manifest; `digest` in hexadecimal."""
    return f"_manifests/{partition}-{digest[:16]}.json"


def writing_name(name: str) -> str:
    """Return the name under which a file is written where it cannot be renamed: as long as it is not whole, no query sees it."""
    return f"_writing/{PurePosixPath(name).stem}.tmp"


def is_data(name: str) -> bool:
    """Whether it is the name of a file with rows."""
    return _DATA.fullmatch(name) is not None


def partition_of(name: str) -> str:
    """Return the partition that a file belongs to."""
    return name.partition("/")[2][: len("session_output_p00000000")]


def is_listed(name: str) -> bool:
    """Whether it is the name of a file of a partition."""
    return any(form.fullmatch(name) for form in (_DATA, _MANIFEST, _WRITING))


def require_readable(name: str) -> None:
    """Raise ArchiveDamagedError unless an archive can have a file of this name: others may have written the name."""
    if name != OWNER and not is_listed(name):
        raise ArchiveDamagedError(f"{name!r} is no name of a file in an archive")


def require_writable(name: str) -> None:
    """Raise ValueError unless a file is given such a name."""
    if name != OWNER and not any(form.fullmatch(name) for form in (_DATA, _MANIFEST)):
        raise ValueError(f"{name!r} is no name of a file in an archive")
