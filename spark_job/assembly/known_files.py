"""The files of open sessions that this process has read and verified: the next batch need not do so again.

A file is known by its path, and by what the file system says of it: one that was written again, cut off or replaced is read anew. What is
known is mapped, not copied, so it takes no memory that the system could not have back.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_MOST_FILES = 2_000
"""Each is a mapping of the process, of which Linux allows 65,530."""

T = TypeVar("T")


class KnownFiles:
    """What was read of files, the least recently used ones forgotten."""

    def __init__(self, most: int = _MOST_FILES) -> None:
        self._most = most
        self._found: OrderedDict[str, tuple[tuple[int, ...], Any]] = OrderedDict()

    def get(self, path: Path) -> Any:
        """What was read of a file; None where it is not known, or not as it was. Raises OSError where there is no file."""
        identity, found = self._found.get(str(path), ((), None))
        return found if identity == _identity(path) else None

    def get_or_read(self, path: Path, read: Callable[[], T]) -> T:
        """The same; what is not known is read. Raises as `read` does."""
        found: T | None = self.get(path)
        if found is None:
            identity = _identity(path)
            found = read()
            self._found[str(path)] = identity, found
        self._found.move_to_end(str(path))
        while len(self._found) > self._most:
            self._found.popitem(last=False)
        return found

    def forget(self, path: Path) -> None:
        """The file was removed."""
        self._found.pop(str(path), None)


def _identity(path: Path) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


KNOWN = KnownFiles()
"""Of this process."""
