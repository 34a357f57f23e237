"""What devstack raises."""

from pathlib import Path

_TAIL_LINES = 30


class DevstackError(Exception):
    """A server of the development stack could not be started, reached or stopped."""


def tail(log: Path) -> str:
    """The last lines of a server's log, indented for an error message; says so when there are none."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    kept = text.splitlines()[-_TAIL_LINES:] or ["(the log is empty)"]
    return "\n".join([f"last lines of {log}:", *(f"  {line}" for line in kept)])
