"""The files of open sessions that this process has read and verified: the next batch need not do so again.

A file is known by its path, and by what the file system says of it: one that was written again, cut off or replaced is read anew. What is
known is mapped, not copied, so it takes no memory that the system could not have back. Other workers take partitions over and remove their
files: each task begins by letting these go (`forget_removed`).
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_MOST_FILES = 20_000
"""Of about a thousand partitions. Each is a mapping of the process, of which Linux allows 65,530."""

T = TypeVar("T")


class KnownFiles:
    """What was read of files, the least recently used ones forgotten."""

    def __init__(self, most: int = _MOST_FILES) -> None:
        self._most = most
        self._found: OrderedDict[str, tuple[tuple[int, ...], Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, path: Path) -> Any:
        """What was read of a file; None where it is not known, or not as it was. Raises OSError where there is no file."""
        identity, found = self._found.get(str(path), ((), None))
        return found if identity == _identity(str(path)) else None

    def get_or_read(self, path: Path, read: Callable[[], T]) -> T:
        """The same; what is not known is read. Raises as `read` does."""
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
        """Whether a known file was written to since: then what is mapped of it is not what was verified."""
        before, _ = self._found.get(str(path), ((), None))
        now = _identity_or_none(str(path))
        return before != now and before[:2] == now[:2]

    def forget_removed(self) -> None:
        """Let go what is not there any more, or not as it was. A mapping keeps the room of a removed file on the disk."""
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
"""Of this process."""
