"""Structured logs of both services: stable event names and keys, no payloads, no secrets.

Every line begins with time, level and event, then says what it is about (batch, lane, replay), then the rest as the code gives it.
A line that cannot be written is lost, and the next one that can be is followed by how many were: no log ends or holds up the work.
"""

import logging
import os
import select
import sys
import textwrap
import threading
from typing import IO, Any

import structlog

from service.json_text import json_text
from service.printable import printable, printable_json
from service.settings import LogSettings

_FIRST = ("timestamp", "level", "event", "batch", "batch_id", "replay", "epoch", "lane")

# How long a line waits for the reader of a pipe, unless the line before waited in vain.
_PATIENCE_MS = 200

_of_process: dict[str, object] = {}
_lost_lines = 0
"""Since the last line that could be written."""


def identify(**ids: object) -> None:
    """Say these ids, by their names in SQL, in every line of this process from now on; None: no longer."""
    for name, value in ids.items():
        _of_process[name] = value
        if value is None:
            del _of_process[name]


class Lines:
    """Writes lines to a stream that may be full, closed or read by nobody. Thread-safe."""

    def __init__(self, stream: IO[str] | None) -> None:
        """`stream`: None where the process was started without one."""
        self._stream = stream
        self._lock = threading.Lock()
        self._patience_ms = _PATIENCE_MS
        self._rest = b""
        """The rest of a line of which only a part could be written."""
        try:
            self._descriptor = None if stream is None else stream.fileno()
        except (OSError, ValueError):
            self._descriptor = None  # text in memory

    def msg(self, line: str) -> None:
        """Write one line. Raises OSError or ValueError where it is lost."""
        with self._lock:
            if self._descriptor is not None:
                self._write(self._descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
            elif self._stream is not None:
                print(line, file=self._stream, flush=True)

    log = debug = info = warn = warning = error = critical = exception = msg

    def _write(self, descriptor: int, line: bytes) -> None:
        room = select.poll()
        room.register(descriptor, select.POLLOUT)
        line = self._rest + line
        while line:
            if not room.poll(self._patience_ms):
                self._patience_ms = 0
                raise BlockingIOError("nobody reads the log")
            # A pipe that has room takes so much without waiting.
            line = line[os.write(descriptor, line[: select.PIPE_BUF]) :]
            self._rest = b"\n"
        self._rest, self._patience_ms = b"", _PATIENCE_MS


def configure(settings: LogSettings) -> None:
    """Send every log line of this process to stderr, as text for people or as JSON for machines."""
    colors = sys.stderr is not None and sys.stderr.isatty()
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer(serializer=_json)]
        if settings.format == "json"
        else [
            _indented,
            structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False, pad_event_to=20, pad_level=False),
        ]
    )
    lines = Lines(sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _identified,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _ordered,
            _printable,
            *renderers,
        ],
        wrapper_class=_best_effort(logging.getLevelNamesMapping()[settings.level]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )


def _best_effort(level: int) -> type[structlog.typing.FilteringBoundLogger]:
    """Return the class of the loggers: of this level, and lines that fail are counted."""
    filtering: Any = structlog.make_filtering_bound_logger(level)

    class BestEffortLogger(filtering):  # type: ignore[misc]
        def _proxy_to_logger(self, method: str, event: str | None = None, **values: Any) -> None:
            global _lost_lines
            try:
                super()._proxy_to_logger(method, event, **values)
                lost, _lost_lines = _lost_lines, 0
                if lost:
                    log = structlog.get_logger()
                    log.warning("log_lines_lost", lines=lost)
            except Exception:  # noqa: BLE001 - there is nowhere to say it
                _lost_lines += 1

    return BestEffortLogger


def _identified(
    _logger: object, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {**line, **{name: value for name, value in _of_process.items() if name not in line}}


def _ordered(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Put the keys first that a reader looks for; the rest stays in the order of the call."""
    return {name: line[name] for name in _FIRST if name in line} | dict(line)


def _printable(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Foreign text is in many lines, and people read them on a terminal. Other values are shown by their `repr`, which escapes."""
    return {
        name: printable(value, keep="\n\t") if isinstance(value, str) else value
        for name, value in line.items()
    }


def _indented(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A message that a traceback ends with may be foreign text of several lines: none may be taken for a line of the log."""
    if "exception" in line:
        line["exception"] = textwrap.indent(line["exception"], "    ")
    return line


def _json(line: object, **_: object) -> str:
    return printable_json(json_text(line))
