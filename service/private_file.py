"""Files that may hold session keys: only their owner may read them."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from service.errors import SettingsError


def private(path: str, flags: int) -> int:
    """Open a file, as `open(..., opener=private)`: a new one is its owner's alone.

    Raises OSError; SettingsError for another user's, or a link that another user has put there. Of neither is anything changed.
    """
    with suppress(FileNotFoundError):
        link = os.lstat(path)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
            raise SettingsError(
                f"{str(path)!r} is another user's link, by which any file of yours could be overwritten. Name another file"
            )
    descriptor = os.open(path, flags & ~os.O_TRUNC, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        if found.st_uid != os.geteuid():
            os.close(descriptor)
            raise SettingsError(
                f"{str(path)!r} is another user's, who could read or change what is written there. Name another file"
            )
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Write a text. A file that is there keeps its mode. Raises OSError, SettingsError for another user's."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
