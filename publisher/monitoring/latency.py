"""Measures how late the outputs of a session are in Kafka: since its end event, and since the commit of its batch.

Both times come with data that the lane reads anyway: the row's own columns, and the ledger's window.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client import Counter

from publisher.monitoring.metrics import REGISTRY
from service.observability.best_effort import best_effort
from service.observability.bulk_histogram import BulkHistogram

# A time outside of these limits is no latency: old input is played back, or a clock is wrong. The console has the same limits.
_EARLIEST_S, _LATEST_S = -5.0, 86_400.0
_BOUNDS_S = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 1_800, 7_200)

_FROM_END = BulkHistogram(
    "outbox_end_to_delivered_seconds",
    "From the time of a session's end event until Kafka confirmed its outputs, for each session.",
    _BOUNDS_S,
    REGISTRY,
)
_FROM_COMMIT = BulkHistogram(
    "outbox_commit_to_delivered_seconds",
    "From the commit of a session's batch in Postgres until Kafka confirmed its outputs, for each session.",
    _BOUNDS_S,
    REGISTRY,
)
_UNTIMED = Counter(
    "outbox_untimed_sessions",
    "Sessions left out of outbox_end_to_delivered_seconds: their end event is more than a day old, or of the future.",
    registry=REGISTRY,
)


class RowTimes(NamedTuple):
    """Times of a row: when its batch was committed, in seconds since 1970, and when its sessions ended, in milliseconds since 1970."""

    committed_s: float
    ended_ms: Sequence[int]


@best_effort("latency.delivered")
def delivered(rows: Sequence[RowTimes], now_s: float | None = None) -> None:
    """Count the latencies of the sessions in these rows, which Kafka has just confirmed."""
    if not rows:
        return
    now_s = time.time() if now_s is None else now_s
    late = [now_s - ended_ms / 1000 for row in rows for ended_ms in row.ended_ms]
    timed = [each for each in late if _EARLIEST_S <= each <= _LATEST_S]
    _FROM_END.observe_all(timed)
    _UNTIMED.inc(len(late) - len(timed))
    _FROM_COMMIT.observe_all([now_s - row.committed_s for row in rows for _ in row.ended_ms])
