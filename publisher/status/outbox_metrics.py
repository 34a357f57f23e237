"""The gauges of the outbox for Prometheus, read from Postgres: lags, stopped lanes, parked rows, replays, storage."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from db.connection import snapshot
from db.polled_gauges import PolledGauges
from db.statements import queries
from publisher.status.publisher_status import LaneStatus, read_lanes
from service.observability.gauges import Gauges, Sample

_PARKED = queries("publisher", "parked")
_REPLAYS = queries("publisher", "replays")
_STORAGE = queries("publisher", "storage")

COUNT_LIMIT = 10_000
"""The most rows that are counted, so that the cost of a poll does not grow with the backlog."""

_LANE = ("epoch", "lane")
_GAUGES: Gauges = {
    "outbox_parked_rows": (f"Parked rows, counted up to {COUNT_LIMIT}.", ["reason"]),
    "outbox_lane_stopped": ("1 for each lane that is stopped.", [*_LANE, "reason"]),
    "outbox_lane_held": ("Whether a living process holds the lane.", _LANE),
    "outbox_lag_batches": ("Batches of the ledger that the lane has not passed.", _LANE),
    "outbox_lag_rows": (f"Undelivered rows of the lane, counted up to {COUNT_LIMIT}.", _LANE),
    "outbox_lag_seconds": ("Age of the lane's oldest undelivered row; 0: none.", _LANE),
    "outbox_replays": ("Replays that are running or paused.", ["state"]),
    "outbox_replay_events_left": ("Events that running or paused replays have not sent yet.", ["state"]),
    "outbox_partitions": (
        "Partitions of session_output: kept, or detaching (retention is under way).",
        ["state"],
    ),
    "outbox_oldest_partition_seconds": (
        "Age of the newest batch in the oldest kept partition, which is what retention goes by.",
        (),
    ),
    "outbox_retention_failed": ("Whether the newest run of retention could not end in order.", ()),
    "outbox_database_bytes": ("Size of the outbox's database.", ()),
}


class PublisherOutboxMetrics(PolledGauges):
    """The gauges as of the last poll."""

    def __init__(self, max_age_s: float) -> None:
        super().__init__(_GAUGES, max_age_s)

    def poll(self, connection: psycopg.Connection[Any]) -> None:
        """Read the gauges again; each statement may take 5 s. Raises psycopg.Error."""
        with snapshot(connection):
            connection.execute("SET LOCAL statement_timeout = '5s'")
            lanes = read_lanes(connection, COUNT_LIMIT)
            parked = connection.execute(_PARKED["bounded_counts"], {"count_limit": COUNT_LIMIT}).fetchall()
            replays = connection.execute(_REPLAYS["unfinished_counts"]).fetchall()
            storage = connection.execute(_STORAGE["storage"]).fetchall()
        self.keep(
            time.monotonic(),
            [*_of_lanes(lanes), *_of_rows(parked, replays), *_of_storage(storage)],
        )


def _of_lanes(lanes: Sequence[LaneStatus]) -> Iterator[Sample]:
    for status in lanes:
        labels = (str(status.epoch), str(status.lane))
        yield "outbox_lane_held", labels, int(status.holder is not None)
        yield "outbox_lag_batches", labels, status.lag_batches
        yield "outbox_lag_rows", labels, status.lag_rows
        yield "outbox_lag_seconds", labels, status.oldest_undelivered_s or 0
        if status.stopped_why is not None:
            yield "outbox_lane_stopped", (*labels, status.stopped_why), 1


def _of_rows(
    parked: Sequence[tuple[str, int]],
    replays: Sequence[tuple[str, int, int]],
) -> Iterator[Sample]:
    for reason, count in parked:
        yield "outbox_parked_rows", [reason], count
    for state, count, events in replays:
        yield "outbox_replays", [state], count
        yield "outbox_replay_events_left", [state], events


def _of_storage(storage: Sequence[tuple[int, int, int, float, int]]) -> Iterator[Sample]:
    for kept, detaching, size, oldest_s, failed in storage:
        yield "outbox_partitions", ["kept"], kept
        yield "outbox_partitions", ["detaching"], detaching
        yield "outbox_oldest_partition_seconds", (), oldest_s
        yield "outbox_retention_failed", (), failed
        yield "outbox_database_bytes", (), size
