"""The session keys of a command line."""

from collections.abc import Iterable
from pathlib import Path

from service.errors import SettingsError


def read_keys(keys: Iterable[str], file: Path | None) -> tuple[str, ...] | None:
    """Return the session keys of `--key` and `--keys-file`, each once; None if neither was given. Raises SettingsError."""
    found = list(keys)
    if file is None and not found:
        return None
    if file is not None:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--keys-file {str(file)!r} cannot be read: {error}") from error
        # Split at line feeds only: str.splitlines also splits at characters that a key may hold.
        found += [line.removesuffix("\r") for line in text.split("\n")]
    unique = tuple(sorted({key for key in found if key}))
    if not unique:
        raise SettingsError("--key and --keys-file name no session key: name one on each line")
    if any("\0" in key for key in unique):
        raise SettingsError(
            "a session key holds no NUL character; is --keys-file a text file, one key a line?"
        )
    return unique
