"""Gauges that come from Postgres. A thread polls Postgres every few seconds; a request for the metrics gets the last answer without
waiting."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import structlog
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from db.connection import connect
from service.errors import UnavailableError
from service.lifecycle.threads import supervised
from service.observability.gauges import Gauges, Sample, families
from service.settings import MetricsSettings, Settings

_log = structlog.get_logger()

_UP: Gauges = {"outbox_postgres_up": ("Whether the last poll of Postgres succeeded.", ())}
# The longest poll: a few statements, each of which may take 5 s.
_LONGEST_POLL_S = 20.0
_JOIN_TIMEOUT_S = 3.0


def max_age_s(settings: MetricsSettings) -> float:
    """Return the age from which the last answer is no longer shown. A connection may hang for a long time before it fails."""
    return 3 * settings.refresh_s + _LONGEST_POLL_S


class PolledGauges(Collector):
    """The result of the last poll of Postgres. The polling thread writes it, other threads collect it."""

    def __init__(self, gauges: Gauges, max_age_s: float) -> None:
        """An answer older than `max_age_s` is not shown."""
        self._gauges = gauges
        self._max_age_s = max_age_s
        self._last: tuple[float, Sequence[Sample]] | None = None

    def keep(self, at: float, samples: Sequence[Sample]) -> None:
        """Show these samples from now on; `at`: the time of the answer, on the monotonic clock."""
        # One assignment, so that a reader sees either all of the old samples or all of the new ones.
        self._last = at, samples

    def lost(self) -> None:
        """Discard the samples, because Postgres does not answer."""
        self._last = None

    def describe(self) -> list[Metric]:
        """Return the metrics without values."""
        return families(_UP) + families(self._gauges)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; only `outbox_postgres_up` 0 while there is no recent answer."""
        last = self._last
        is_known = last is not None and time.monotonic() - last[0] <= self._max_age_s
        yield from families(_UP, [("outbox_postgres_up", (), int(is_known))])
        if last is not None and is_known:
            yield from families(self._gauges, last[1])


@contextmanager
def polling(
    settings: Settings,
    application: str,
    poll: Callable[[psycopg.Connection[Any]], None],
    lost: Callable[[], None],
) -> Iterator[None]:
    """Call `poll` repeatedly until the block ends, and `lost` after each failure and at the end. Both run in a separate thread."""
    ended = threading.Event()

    def run() -> None:
        try:
            _poll_until(settings, application, poll, lost, ended)
        finally:
            lost()

    thread = supervised(run, "metrics", ended)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A connection that hangs must not delay the end of the process.
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
                _log.error("metrics_failed", what="polling Postgres", exc_info=error)
        ended.wait(settings.metrics.refresh_s)
