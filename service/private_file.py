"""Files that may hold session keys: only their owner may read them."""

import os
from pathlib import Path


def private(path: str, flags: int) -> int:
    """Open a file, as `open(..., opener=private)`: a new one is its owner's alone."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a text. A file that is there keeps its mode. Raises OSError."""
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
