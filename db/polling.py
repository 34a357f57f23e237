"""The thread that polls Postgres every few seconds for the metrics, so that a scrape gets the last answer and waits for nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import structlog

from db.connection import connect
from service.errors import UnavailableError
from service.settings import Settings

_log = structlog.get_logger()

LONGEST_POLL_S = 20.0
"""What one poll may take: a few statements of at most 5 s."""
_JOIN_TIMEOUT_S = 3.0


@contextmanager
def polling(
    settings: Settings,
    application: str,
    poll: Callable[[psycopg.Connection[Any]], None],
    lost: Callable[[], None],
) -> Iterator[None]:
    """Call `poll` again and again until the block ends, `lost` while Postgres is away and at the end. Both in a thread of their own."""
    ended = threading.Event()

    def run() -> None:
        try:
            _poll_until(settings, application, poll, lost, ended)
        finally:
            lost()

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A connection that hangs must not hold up the end of the process.
        thread.join(_JOIN_TIMEOUT_S)


def _poll_until(
    settings: Settings,
    application: str,
    poll: Callable[[psycopg.Connection[Any]], None],
    lost: Callable[[], None],
    ended: threading.Event,
) -> None:
    is_lost, unexpected = False, ""
    while not ended.is_set():
        try:
            with connect(settings.postgres, application, autocommit=True) as connection:
                while not ended.is_set():
                    poll(connection)
                    is_lost = False
                    ended.wait(settings.metrics.refresh_s)
        except (psycopg.Error, UnavailableError) as error:
            lost()
            if not is_lost:
                _log.warning("metrics_without_postgres", reason=str(error).strip())
            is_lost = True
        except Exception as error:  # noqa: BLE001 - the next poll may succeed, and a thread that ended would make none
            lost()
            if repr(error) != unexpected:
                unexpected = repr(error)
                _log.error("metrics_failed", what="a look at Postgres", exc_info=error)
        ended.wait(settings.metrics.refresh_s)
