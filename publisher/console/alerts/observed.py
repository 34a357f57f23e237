"""Reads the observations that the conditions need, with a few bounded queries, which are repeated every second while a page is open."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from db import windows
from db.statements import queries
from publisher.console.reader import Connection, PageData, may_read_all, read
from publisher.outbox import parked_topics
from publisher.outbox.permitted import permitted
from publisher.status.publisher_status import LaneStatus, read_lanes
from service.settings import Settings

_FLOW = queries("publisher.console", "flow")
_PARKED = queries("publisher", "parked")
_SIGNS = queries("publisher.console", "signs")

COUNT_LIMIT = 10_000
"""The most rows and letters that are counted."""
DEAD_LETTERS_S, RESTARTS_S = 600, 900
"""The time ranges of the alerts OutboxDeadLetters and OutboxRestarts."""
_LATENCY = {"deliveries": 40, "rows": 50, "span_s": 300}

NotReady = Callable[[], Sequence[str]]
"""Why the process that serves the console is not ready; empty if it does not deliver."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One set of observations. None: the login may not read the value, or there is none."""

    lanes: Sequence[LaneStatus]
    services: Sequence[Mapping[str, Any]] | None
    parked: Mapping[str, int]
    parked_topics: Mapping[str, datetime]
    letters: Mapping[str, int] | None
    interrupted_replays: Sequence[int]
    not_ready: Sequence[str] = ()
    """Why `/readyz` of the process that serves the console returns 503."""
    new_letters: Mapping[str, int] | None = None
    """Open letters of the last `DEAD_LETTERS_S`, by reason."""
    failed_runs: int | None = None
    """Runs that ended with an error within the last `RESTARTS_S`; counted up to 20."""
    end_to_delivered_s: float | None = None
    """99 of 100 sessions of the last five minutes were delivered this soon after their end event."""
    delivered_s_ago: float | None = None
    """Seconds since the newest delivery of any lane."""
    largest_open: float | None = None
    """The most bytes that an input partition holds open, as a share of `[session] max_open_bytes`."""
    oldest_partition_s: float | None = None
    keep_s: float | None = None
    """`[retention] keep_s` of this process."""
    retention_failed: str | None = None
    """Why the newest run of retention failed."""


def observe(connection: Connection, settings: Settings, not_ready: NotReady) -> tuple[Observed, PageData]:
    """Return the observations, and the latency of the last five minutes. Raises psycopg.Error."""
    _, is_auditor = may_read_all(connection)
    services = permitted(connection, lambda: read(connection, _FLOW["services"]), None)
    latency = _latency(connection)
    replays = permitted(connection, lambda: read(connection, _FLOW["interrupted_replays"]), None)
    signs = read(connection, _SIGNS["of_delivery"])[0]
    job = permitted(connection, lambda: read(connection, _SIGNS["of_job"], span_s=RESTARTS_S)[0], None)
    largest = None if job is None else job["largest_open_bytes"]
    seen = Observed(
        lanes=read_lanes(connection, COUNT_LIMIT),
        services=services if is_auditor else None,
        parked=dict(connection.execute(_PARKED["bounded_counts"], {"count_limit": COUNT_LIMIT}).fetchall()),
        parked_topics=parked_topics.standing(connection),
        letters=permitted(connection, lambda: _letters(connection, None), None),
        interrupted_replays=[each["replay_id"] for each in replays or ()],
        not_ready=not_ready(),
        new_letters=permitted(connection, lambda: _letters(connection, DEAD_LETTERS_S), None),
        failed_runs=None if job is None else job["failed_runs"],
        end_to_delivered_s=latency["ended_s"][1] if latency["timed"] else None,
        delivered_s_ago=signs["delivered_s_ago"],
        largest_open=None if largest is None else largest / settings.session.max_open_bytes,
        oldest_partition_s=signs["oldest_partition_s"],
        keep_s=settings.retention.keep_s,
        retention_failed=signs["retention_failed"],
    )
    return seen, latency


def _latency(connection: Connection) -> PageData:
    span = read(
        connection, _FLOW["latency_range"], deliveries=_LATENCY["deliveries"], span_s=_LATENCY["span_s"]
    )[0]
    last = span["to_batch"] or 0
    # If a delivery covers very many batches, only the newest are read.
    first = max(span["from_batch"] or 0, last - windows.BATCHES)
    return read(connection, _FLOW["latency"], **_LATENCY, from_batch=first, to_batch=last)[0]


def _letters(connection: Connection, span_s: float | None) -> dict[str, int]:
    rows = read(connection, _SIGNS["open_letters"], count_limit=COUNT_LIMIT, span_s=span_s)
    return {row["reason"]: row["letters"] for row in rows}
