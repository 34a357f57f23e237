"""Lags, stopped lanes, parked rows and replays as Prometheus metrics, out of Postgres."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from db.statements import statement
from publisher.monitoring.status import LaneStatus, read_lanes

COUNT_LIMIT = 10_000
"""Rows are counted up to this many: what a look costs does not grow with a backlog."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What Postgres said at one moment of the monotonic clock."""

    at: float
    lanes: list[LaneStatus]
    parked: dict[str, int]
    stopped: list[tuple[int, int, str]]
    replays: list[tuple[str, int, int]]


class OutboxMetrics(Collector):
    """The last look at Postgres. `look` and `collect` may be called by different threads."""

    def __init__(self, max_age_s: float) -> None:
        """An older look counts as none: a connection may hang for long before it fails."""
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._last: _Look | None = None

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
            replays = connection.execute(statement("publisher", "metrics_replays")).fetchall()
        with self._lock:
            self._last = _Look(time.monotonic(), lanes, dict(parked), stopped, replays)

    def lost(self) -> None:
        """Postgres does not answer: nothing is known of it until the next look."""
        with self._lock:
            self._last = None

    def describe(self) -> list[Metric]:
        """Name the metrics without values."""
        return list(_families().values())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; only that Postgres is away while it is."""
        with self._lock:
            look = self._last
        is_known = look is not None and time.monotonic() - look.at <= self._max_age_s
        found = _families()
        found["outbox_postgres_up"].add_metric([], int(is_known))
        if look is None or not is_known:
            yield found["outbox_postgres_up"]
            return
        for reason, count in look.parked.items():
            found["outbox_parked_rows"].add_metric([reason], count)
        for epoch, lane, why in look.stopped:
            found["outbox_lane_stopped"].add_metric([str(epoch), str(lane), why], 1)
        for state, replays, events in look.replays:
            found["outbox_replays"].add_metric([state], replays)
            found["outbox_replay_events_left"].add_metric([state], events)
        for status in look.lanes:
            labels = [str(status.epoch), str(status.lane)]
            found["outbox_lag_batches"].add_metric(labels, status.lag_batches)
            found["outbox_lag_rows"].add_metric(labels, status.lag_rows)
            found["outbox_lag_seconds"].add_metric(labels, status.oldest_undelivered_s or 0)
        yield from found.values()


def _families() -> dict[str, GaugeMetricFamily]:
    lane = ["epoch", "lane"]
    texts: dict[str, tuple[str, list[str]]] = {
        "outbox_postgres_up": ("Whether the last look at Postgres went well.", []),
        "outbox_parked_rows": (f"Rows put aside, counted up to {COUNT_LIMIT}.", ["reason"]),
        "outbox_lane_stopped": ("1 for each lane that stands still.", [*lane, "why"]),
        "outbox_lag_batches": ("Batches of the ledger that the lane has not passed.", lane),
        "outbox_lag_rows": (f"Undelivered rows of the lane, counted up to {COUNT_LIMIT}.", lane),
        "outbox_lag_seconds": ("Age of the lane's oldest undelivered row; 0: none.", lane),
        "outbox_replays": ("Replays that are running or paused.", ["state"]),
        "outbox_replay_events_left": ("Events that they have not sent yet.", ["state"]),
    }
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in texts.items()}
