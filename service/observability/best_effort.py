"""Measurements must never end the work: their failure is logged once, and the work continues."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_log = structlog.get_logger()

_lock = threading.Lock()
_told: set[tuple[str, str]] = set()


@contextmanager
def best_effort(what: str, *through: type[Exception]) -> Iterator[None]:
    """Keep the block's exceptions from its caller. As a decorator: the function returns None after an exception.

    Logs each `what` and kind of exception once, with its traceback. Exceptions of `through` reach the caller.
    """
    try:
        yield
    except through:
        raise
    except Exception as error:  # noqa: BLE001 - the work is worth more than the measurement
        with _lock:
            is_new = (what, type(error).__name__) not in _told
            _told.add((what, type(error).__name__))
        if is_new:
            _log.error("metrics_failed", what=what, exc_info=error)
