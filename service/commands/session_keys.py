"""The session keys of a command line, and the files that name them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from service.errors import SettingsError

_JSON = ".jsonl"
_BYTE_ORDER_MARK = "\ufeff"


def read_keys(keys: Iterable[str], file: Path | None) -> tuple[str, ...] | None:
    """Return the session keys of `--key` and `--keys-file`, each once; None if neither was given. Raises SettingsError.

    A file whose name ends with `.jsonl`, in upper or lower case, has a JSON string on each line; any other file, a key as it is.
    """
    found = list(keys)
    if file is None and not found:
        return None
    if file is not None:
        try:
            text = file.read_bytes().decode()  # read_text makes a line feed of each carriage return
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--keys-file {str(file)!r} cannot be read: {error}") from error
        found += (_json_strings if _is_json(file) else _lines)(text, file)
    unique = tuple(sorted({key for key in found if key}))
    if not unique:
        raise SettingsError("--key and --keys-file name no session key: name one on each line")
    if any("\0" in key for key in unique):
        raise SettingsError(
            "a session key holds no NUL character; is --keys-file a text file, one key a line?"
        )
    if any("\ud800" <= character <= "\udfff" for key in unique for character in key):
        raise SettingsError("a session key is UTF-8 text, and one that was named is not")
    return unique


def is_line(key: str) -> bool:
    """Whether a line of a file can hold the key as it is, and nobody would take the line for JSON."""
    return (
        not _is_json_string(key)
        and "\n" not in key
        and "\r" not in key
        and not key.startswith(_BYTE_ORDER_MARK)
    )


def file_text(keys: Iterable[str], file: Path) -> str:
    """Return the text of a `--keys-file` of this name."""
    return "".join(f"{json.dumps(key) if _is_json(file) else key}\n" for key in keys)


def _is_json(file: Path) -> bool:
    return file.suffix.lower() == _JSON


def _is_json_string(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str)
    except (ValueError, RecursionError):
        return False


def _lines(text: str, file: Path) -> list[str]:
    """Return the lines. Split at line feeds only: str.splitlines also splits at characters that a key may hold.

    Characters that an editor may have added are refused: they may be part of a key.
    """
    lines = text.split("\n")
    of_editor = "a byte order mark begins it" if text.startswith(_BYTE_ORDER_MARK) else None
    if any(line.endswith("\r") for line in lines):
        of_editor = "lines end with a carriage return"
    named = [line for line in lines if line]
    if named and all(map(_is_json_string, named)):
        raise SettingsError(
            f"--keys-file {str(file)!r}: each line is a JSON string. If they are JSON, name the file .jsonl; keys that have quotation "
            "marks around them are given with --key, or as JSON strings in a file named .jsonl"
        )
    if of_editor is not None:
        raise SettingsError(
            f"--keys-file {str(file)!r}: {of_editor}, which a key may hold. If no key does, remove it (dos2unix); otherwise give JSON "
            "strings, one a line, in a file named .jsonl"
        )
    return lines


def _json_strings(text: str, file: Path) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                key = json.loads(line)
            except (ValueError, RecursionError):
                key = None
            if not isinstance(key, str):
                raise SettingsError(f"--keys-file {str(file)!r}: line {number} is no JSON string")
            yield key
