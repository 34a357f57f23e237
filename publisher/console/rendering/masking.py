"""Masks events, and messages that may quote them, before the console shows them. Pure."""

import re
from typing import Any

_MOST_SHOWN = 4_000
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
_TIME = re.compile(r"( is (?:not a|no) time: ).*")
"""In messages, a time that is a number has no quotation marks."""
_EXCEPTION = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+([A-Za-z_][\w.]*)(?=:|\n|\Z)")
"""The first exception of a traceback. The lines after its name may be any text, even another traceback."""
_RAISED = re.compile(r"([A-Za-z_]\w*): ")
"""The exception that a consumer's block raised. Its message may be any text."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
HIDDEN = "…"


def shown_bytes(value: bytes | None, *, show: bool, size: int | None = None) -> str:
    """Return the value or key of a record, and escape bytes that are no text. Without `show`, return only its size.

    `size`: the size of the whole value, if `value` is only its beginning.
    """
    if value is None:
        return "null"
    size = len(value) if size is None else size
    if not show:
        return f"{size:,} bytes, hidden"
    text = value[:_MOST_SHOWN].decode("utf-8", "backslashreplace")
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text if size <= _MOST_SHOWN else f"{text}… ({size:,} bytes)"


def shown_text(text: str) -> str:
    """Return the beginning of a text that may be shown."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text):,} characters)"


def shown_key(key: bytes | None, session_key: str, *, show: bool, size: int | None = None) -> str:
    """Return a record's key. A key that equals the session key is shown even without `show`: the person found the session by it."""
    return session_key if key == session_key.encode() else shown_bytes(key, show=show, size=size)


def shown_headers(headers: list[Any] | None, *, show: bool) -> str:
    """Return a transform's own headers. Without `show`, only their names."""
    pairs = [(str(each[0]), each[1]) for each in headers or [] if isinstance(each, list) and len(each) == 2]
    return ", ".join(f"{name}={value}" if show else name for name, value in pairs)


def shown_detail(detail: str, reason: str, *, show: bool) -> str:
    """Return, on one line, why a letter was written or a row parked. Without `show`, quotes of events are removed.

    For a failed transform it is the last line of the traceback; without `show` only the name of the first exception, because a message may
    be any text, of several lines.
    """
    lines = detail.rstrip("\n").splitlines() or [""]
    if reason == "transform_failed":
        if show:
            return lines[-1][:_MOST_SHOWN]
        name = _EXCEPTION.match(detail)
        return f"{name[1] if name else 'exception'}: {HIDDEN}"
    text = " ".join(lines)
    if show:
        return text[:_MOST_SHOWN]
    if len(text) > 2 * _MOST_SHOWN:  # every quotation mark may be searched to the end of the text
        return f"{HIDDEN} ({len(text):,} characters)"
    return _QUOTED.sub(HIDDEN, _TIME.sub(rf"\1{HIDDEN}", text))[:_MOST_SHOWN]


def shown_reason(reason: str, *, show: bool) -> str:
    """Return why a consumer set an output aside. Without `show`, only the name of the exception that its block raised."""
    if show:
        return shown_text(reason)
    raised = _RAISED.match(reason)
    return f"{raised[1]}: {HIDDEN}" if raised else HIDDEN


def shown_traceback(detail: str, *, show: bool) -> str | None:
    """Return the whole traceback, None unless `show`."""
    return detail[: 4 * _MOST_SHOWN] if show and "\n" in detail.rstrip("\n") else None
