"""Structured logs of both services: stable event names and keys, no payloads, no secrets.

Every line has time, level and event, then its object (batch, lane, replay), then the rest in the code's order.
A line that cannot be written is lost; after the next written line, the number of lost lines is logged. So logging never ends the work, and
hardly delays it.
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

# Milliseconds that a line waits for the reader of a pipe. After a line that waited in vain, the next line does not wait.
_PATIENCE_MS = 200

_of_process: dict[str, object] = {}
_lost_lines = 0
"""Lost lines since the last written one."""


def identify(**ids: object) -> None:
    """Put these ids, by their names in SQL, in every line of this process from now on; None removes an id."""
    for name, value in ids.items():
        _of_process[name] = value
        if value is None:
            del _of_process[name]


class Lines:
    """Writes lines to a stream that may be full, closed or without a reader. Thread-safe."""

    def __init__(self, stream: IO[str] | None) -> None:
        """`stream`: None if the process has no stderr."""
        self._stream = stream
        self._lock = threading.Lock()
        self._patience_ms = _PATIENCE_MS
        self._rest = b""
        """The unwritten rest of a line that was written in part."""
        try:
            self._descriptor = None if stream is None else stream.fileno()
        except (OSError, ValueError):
            self._descriptor = None  # text in memory

    def msg(self, line: str) -> None:
        """Write one line. Raises OSError or ValueError if it is lost."""
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
            # A writable pipe takes this much without blocking.
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
    """Return the class of the loggers, with this level, that counts failed lines."""
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
    """Put the keys that a reader looks for first; the others keep the order of the call."""
    return {name: line[name] for name in _FIRST if name in line} | dict(line)


def _printable(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape strings: many lines hold foreign text, and people read them on a terminal. Other values are shown by `repr`, which escapes."""
    return {
        name: printable(value, keep="\n\t") if isinstance(value, str) else value
        for name, value in line.items()
    }


def _indented(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Indent a traceback: its last message may be foreign text of several lines, none of which may look like a line of the log."""
    if "exception" in line:
        line["exception"] = textwrap.indent(line["exception"], "    ")
    return line


def _json(line: object, **_: object) -> str:
    return printable_json(json_text(line))
