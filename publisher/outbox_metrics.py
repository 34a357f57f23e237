"""Lags, stopped lanes and parked rows as Prometheus metrics, out of Postgres."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from db.statements import statement
from publisher.status import LaneStatus, read_lanes

COUNT_LIMIT = 10_000
"""Rows are counted up to this many: what a look costs does not grow with a backlog."""


class OutboxMetrics(Collector):
    """The last look at Postgres. `look` and `collect` may be called by different threads."""

    def __init__(self, max_age_s: float) -> None:
        """An older look counts as none: a connection may hang for long before it fails."""
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._lanes: list[LaneStatus] = []
        self._parked: dict[str, int] = {}
        self._stopped: list[tuple[int, int, str]] = []
        self._is_known = False

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Read anew, for some seconds at the most. Raises psycopg.Error."""
        with connection.transaction():
            connection.execute(statement("publisher", "snapshot"))
            connection.execute(statement("publisher", "metrics_timeout"))
            lanes = read_lanes(connection, COUNT_LIMIT)
            parked = connection.execute(
                statement("publisher", "metrics_parked"), {"count_limit": COUNT_LIMIT}
            ).fetchall()
            stopped = connection.execute(statement("publisher", "metrics_stopped")).fetchall()
        with self._lock:
            self._lanes, self._parked, self._stopped, self._is_known = lanes, dict(parked), stopped, True
            self._looked_at = time.monotonic()

    def lost(self) -> None:
        """Postgres does not answer: nothing is known of it until the next look."""
        with self._lock:
            self._is_known = False

    def describe(self) -> list[Metric]:
        """Name nothing at registration: that would collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; only that Postgres is away while it is."""
        with self._lock:
            lanes, parked, stopped = self._lanes, self._parked, self._stopped
            is_known = self._is_known and time.monotonic() - self._looked_at <= self._max_age_s
        yield GaugeMetricFamily(
            "outbox_postgres_up", "Whether the last look at Postgres went well.", int(is_known)
        )
        if not is_known:
            return
        rows = GaugeMetricFamily(
            "outbox_parked_rows", f"Rows put aside, counted up to {COUNT_LIMIT}.", labels=["reason"]
        )
        for reason, count in parked.items():
            rows.add_metric([reason], count)
        yield rows
        yield _stopped_lanes(stopped)
        yield from _lags(lanes)


def _stopped_lanes(stopped: list[tuple[int, int, str]]) -> Metric:
    family = GaugeMetricFamily(
        "outbox_lane_stopped", "1 for each lane that stands still.", labels=["epoch", "lane", "why"]
    )
    for epoch, lane, why in stopped:
        family.add_metric([str(epoch), str(lane), why], 1)
    return family


def _lags(lanes: list[LaneStatus]) -> Iterator[Metric]:
    batches, rows, seconds = (
        GaugeMetricFamily(f"outbox_lag_{name}", text, labels=["epoch", "lane"])
        for name, text in (
            ("batches", "Batches of the ledger that the lane has not passed."),
            ("rows", f"Undelivered rows of the lane, counted up to {COUNT_LIMIT}."),
            ("seconds", "Age of the lane's oldest undelivered row; 0: none."),
        )
    )
    for lane in lanes:
        labels = [str(lane.epoch), str(lane.lane)]
        batches.add_metric(labels, lane.lag_batches)
        rows.add_metric(labels, lane.lag_rows)
        seconds.add_metric(labels, lane.oldest_undelivered_s or 0)
    yield from (batches, rows, seconds)
