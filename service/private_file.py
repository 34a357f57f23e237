"""Files that may hold session keys: only their owner may read them."""

import os
import stat
from pathlib import Path

from service.errors import SettingsError


def private(path: str, flags: int) -> int:
    """Open a file, as `open(..., opener=private)`: a new one is its owner's alone. Raises OSError, SettingsError for another user's."""
    descriptor = os.open(path, flags, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid != os.geteuid():
        os.close(descriptor)
        raise SettingsError(
            f"{str(path)!r} is another user's, who could read or change what is written there. Name another file"
        )
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Write a text. A file that is there keeps its mode. Raises OSError, SettingsError for another user's."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
