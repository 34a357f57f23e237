"""Structured logs of both services: stable event names and keys, no payloads, no secrets.

Every line begins with time, level and event, then says what it is about (batch, lane, replay), then the rest as the code gives it.
"""

import logging
import sys

import structlog

from service.json_text import json_text
from service.settings import LogSettings

_FIRST = ("timestamp", "level", "event", "batch", "batch_id", "replay", "epoch", "lane")


_of_process: dict[str, object] = {}


def identify(**ids: object) -> None:
    """Say these ids, by their names in SQL, in every line of this process from now on; None: no longer."""
    for name, value in ids.items():
        _of_process[name] = value
        if value is None:
            del _of_process[name]


def configure(settings: LogSettings) -> None:
    """Send every log line of this process to stderr, as text for people or as JSON for machines."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(serializer=_json)
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), sort_keys=False, pad_event_to=20, pad_level=False
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _identified,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _ordered,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _identified(
    _logger: object, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {**line, **{name: value for name, value in _of_process.items() if name not in line}}


def _ordered(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Put first what a reader looks for first; the rest stays in the order of the call."""
    return {name: line[name] for name in _FIRST if name in line} | dict(line)


def _json(line: object, **_: object) -> str:
    return json_text(line)
