"""Java properties files."""

from collections.abc import Mapping
from pathlib import Path


def write(file: Path, settings: Mapping[str, str]) -> Path:
    """Write them, and return the file. Raises ValueError for what would have to be escaped."""
    for name, value in settings.items():
        if any(sign in name + value for sign in "\\\n\r") or any(sign in name for sign in " =:"):
            raise ValueError(f"{name}={value!r} would have to be escaped in a properties file")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    return file
