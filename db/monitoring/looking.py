"""The thread that looks at Postgres every few seconds, so that a scrape gets the last look and waits for nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import structlog

from db.connection import connect
from db.errors import UnavailableError
from db.settings import Settings

_log = structlog.get_logger()

LONGEST_LOOK_S = 20.0
"""What one look may take: a few statements of at most 5 s."""
_GOODBYE_S = 3.0


@contextmanager
def looking(
    settings: Settings,
    application: str,
    look: Callable[[psycopg.Connection[Any]], None],
    lost: Callable[[], None],
) -> Iterator[None]:
    """Call `look` again and again until the block ends, `lost` while Postgres is away and at the end. Both in a thread of their own."""
    ended = threading.Event()

    def run() -> None:
        try:
            _look_until(settings, application, look, lost, ended)
        finally:
            lost()

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A connection that hangs must not hold up the end of the process.
        thread.join(_GOODBYE_S)


def _look_until(
    settings: Settings,
    application: str,
    look: Callable[[psycopg.Connection[Any]], None],
    lost: Callable[[], None],
    ended: threading.Event,
) -> None:
    is_lost, unexpected = False, ""
    while not ended.is_set():
        try:
            with connect(settings.postgres, application, autocommit=True) as connection:
                while not ended.is_set():
                    look(connection)
                    is_lost = False
                    ended.wait(settings.metrics.refresh_s)
        except (psycopg.Error, UnavailableError) as error:
            lost()
            if not is_lost:
                _log.warning("metrics_without_postgres", reason=str(error).strip())
            is_lost = True
        except Exception as error:  # noqa: BLE001 - the next look may be better, and a thread that ended would look no more
            lost()
            if repr(error) != unexpected:
                unexpected = repr(error)
                _log.error("metrics_failed", what="a look at Postgres", exc_info=error)
        ended.wait(settings.metrics.refresh_s)
