"""Files that may hold session keys: only their owner may read them."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from service.errors import SettingsError


def private(path: str, flags: int) -> int:
    """Open a file, as `open(..., opener=private)`: a new one is its owner's alone.

    Raises OSError; SettingsError for another user's file or pipe, or a link that another user has put there. Of none is anything changed.
    """
    no_link = os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        there = os.lstat(path)
        if stat.S_ISLNK(there.st_mode):
            if there.st_uid not in (0, os.geteuid()):
                raise SettingsError(
                    f"{str(path)!r} is another user's link, by which any file of yours could be overwritten. Name another file"
                )
            no_link = 0
        else:
            # Before it is opened, which waits for the reader of a pipe.
            _refuse_of_others(path, there)
    descriptor = os.open(path, flags & ~os.O_TRUNC | no_link, 0o600)
    found = os.fstat(descriptor)
    try:
        if no_link or stat.S_ISREG(found.st_mode):
            _refuse_of_others(path, found)
    except SettingsError:
        os.close(descriptor)
        raise
    if stat.S_ISREG(found.st_mode) and flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)
    return descriptor


def _refuse_of_others(path: str, found: os.stat_result) -> None:
    """Raise SettingsError for another user's file or pipe. A terminal, or /dev/null, may be anybody's."""
    keeps = stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)
    if keeps and found.st_uid != os.geteuid():
        raise SettingsError(
            f"{str(path)!r} is another user's, who could read or change what is written there. Name another file"
        )


def write_private(path: Path, text: str) -> None:
    """Write a text. A file that is there keeps its mode. Raises OSError, SettingsError for another user's."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
