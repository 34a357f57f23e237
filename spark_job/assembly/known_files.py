"""Remember the files of open sessions that this process has read and verified, so that the next batch does not read them again.

A file is identified by its path, device, inode, size and modification time: if it was rewritten, truncated or replaced, it is read again.
Known files are mapped, not copied, so that the system can reclaim their memory. Another worker may take a partition over and remove its
files, so each task first forgets the files that are gone (`forget_removed`).
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_MOST_FILES = 20_000
"""Enough for about a thousand partitions. Each file takes one memory mapping; Linux allows a process 65,530."""

T = TypeVar("T")


class KnownFiles:
    """The contents read from at most `most` files. The least recently used are forgotten first."""

    def __init__(self, most: int = _MOST_FILES) -> None:
        self._most = most
        self._found: OrderedDict[str, tuple[tuple[int, ...], Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, path: Path) -> Any:
        """Return what was read from a file; None if it is unknown or has changed. Raises OSError if there is no file."""
        identity, found = self._found.get(str(path), ((), None))
        return found if identity == _identity(str(path)) else None

    def get_or_read(self, path: Path, read: Callable[[], T]) -> T:
        """Return what was read from a file; read it if it is unknown. Raises as `read` does."""
        found: T | None = self.get(path)
        if found is None:
            identity = _identity(str(path))
            found = read()
            self._found[str(path)] = identity, found
        self._found.move_to_end(str(path))
        while len(self._found) > self._most:
            self._found.popitem(last=False)
        return found

    def is_changed(self, path: Path) -> bool:
        """Return whether a known file was written after it was verified."""
        before, _ = self._found.get(str(path), ((), None))
        now = _identity_or_none(str(path))
        return before != now and before[:2] == now[:2]

    def forget_removed(self) -> None:
        """Forget files that were removed or changed. While it is mapped, a removed file still takes room on the disk."""
        gone = [path for path, (identity, _) in self._found.items() if identity != _identity_or_none(path)]
        for path in gone:
            del self._found[path]


def _identity(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _identity_or_none(path: str) -> tuple[int, ...]:
    try:
        return _identity(path)
    except OSError:
        return ()


KNOWN = KnownFiles()
"""The known files of this process."""
