"""Reads the page of the flow: rates, lag, latency, services, and the conditions that need a person."""

from collections.abc import Sequence
from typing import Any

from psycopg.rows import DictRow

from db.statements import queries
from publisher.console.alerts.findings import findings
from publisher.console.alerts.observed import COUNT_LIMIT, NotReady, observe
from publisher.console.reader import Connection, PageData, may_read_all, read
from publisher.outbox.permitted import permitted
from publisher.status.publisher_status import LaneStatus
from service.settings import Settings

_FLOW = queries("publisher.console", "flow")

STEP_S, SPAN_S = 2, 120
_RATE_STEPS = 5


def read_flow(connection: Connection, settings: Settings, not_ready: NotReady) -> PageData:
    """Return the data of the page of the flow. Raises psycopg.Error."""
    login, _ = may_read_all(connection)
    seen, latency = observe(connection, settings, not_ready)
    span = {"step_s": STEP_S, "span_s": SPAN_S}
    committed = read(connection, _FLOW["committed"], **span)
    delivered = read(connection, _FLOW["delivered"], **span)
    newest = read(connection, _FLOW["newest"])
    return {
        "login": login,
        "rates": _rates(committed, delivered),
        "series": {
            "input events": series(committed, "input_events"),
            "outputs committed": series(committed, "output_events"),
            "outputs delivered": series(delivered, "events"),
        },
        "newest": newest[0] if newest else None,
        "lag": _lag(seen.lanes),
        "latency": latency,
        "services": permitted(connection, lambda: read(connection, _FLOW["services"]), None),
        "findings": findings(seen),
        "input": permitted(connection, lambda: read(connection, _FLOW["input"]), None),
    }


def _rates(committed: Sequence[DictRow], delivered: Sequence[DictRow]) -> dict[str, dict[str, float]]:
    """Return rates per second over the last ten seconds and the last two minutes."""
    return {
        label: {
            "now": rate(rows, column, _RATE_STEPS),
            "mean": rate(rows, column, SPAN_S // STEP_S),
        }
        for label, rows, column in (
            ("input events", committed, "input_events"),
            ("sessions", committed, "sessions"),
            ("outputs committed", committed, "output_events"),
            ("outputs delivered", delivered, "events"),
        )
    }


def rate(rows: Sequence[DictRow], column: str, steps: int) -> float:
    """Return the mean per second over the last `steps` steps."""
    total: float = sum(int(row[column]) for row in rows if row["step"] < steps)
    return total / (steps * STEP_S)


def series(rows: Sequence[DictRow], column: str) -> list[float]:
    """Return the rate of each step, oldest first."""
    steps = SPAN_S // STEP_S
    per_s = [0.0] * steps
    for row in rows:
        if 0 <= row["step"] < steps:
            per_s[steps - 1 - row["step"]] += int(row[column]) / STEP_S
    return per_s


def _lag(lanes: Sequence[LaneStatus]) -> dict[str, Any]:
    return {
        "rows": sum(lane.lag_rows for lane in lanes),
        "is_more": any(lane.lag_rows >= COUNT_LIMIT for lane in lanes),
        "batches": max((lane.lag_batches for lane in lanes), default=0),
        "oldest_s": max((lane.oldest_undelivered_s or 0.0 for lane in lanes), default=0.0),
        "lanes": len(lanes),
        "held": sum(lane.holder is not None for lane in lanes),
        "stopped": sum(lane.is_stopped for lane in lanes),
    }
