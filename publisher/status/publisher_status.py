"""Reads the progress of every lane from Postgres alone, so that it works while the publisher or Kafka is down."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row

from contract.cursor import Cursor
from db.connection import snapshot
from db.statements import queries
from publisher.assignment.membership import Process, read_living
from publisher.outbox import parked_topics
from publisher.outbox.identity import OutboxIdentity, read_identity
from publisher.status import backlog
from publisher.status.backlog import LaneBacklog

_DELIVERIES = queries("publisher", "deliveries")
_LANES = queries("publisher", "lanes")
_PARKED = queries("publisher", "parked")
_REPLAYS = queries("publisher", "replays")

COUNT_LIMIT = 1_000_000
"""The most undelivered rows that are counted for each lane."""
PARKED_LIMIT = 10_000
"""The most parked rows that are counted for each reason."""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane. `oldest_undelivered_s`: None if every row is delivered. `holder`: None if nobody holds the lease.

    `stopped_reason`: why the lane is stopped or retries, with the commands that help. `stopped_why`: the same as one word (StopReason),
    only while the lane is stopped.
    `waiting`: a process still holds a lane of an earlier epoch.
    """

    epoch: int
    lane: int
    holder: str | None
    seq: int
    cursor_batch: int
    cursor_key: str | None
    sessions: int
    events: int
    stopped_reason: str | None
    stopped_why: str | None
    last_delivery_at: datetime | None
    lag_batches: int
    lag_rows: int
    oldest_undelivered_s: float | None
    waiting: bool

    @property
    def is_stopped(self) -> bool:
        """Whether the lane delivers nothing until a cause is removed, or until an interrupted resume is completed."""
        return self.stopped_why is not None

    @property
    def is_retrying(self) -> bool:
        """Whether the lane waits for a server, or delivers smaller transactions after larger ones failed. It continues by itself."""
        return self.stopped_reason is not None and not self.is_stopped

    @property
    def abandoned(self) -> bool:
        """Whether undelivered rows wait, while nobody holds the lane or a lane of an earlier epoch."""
        return self.holder is None and self.lag_rows > 0 and not self.waiting


class DeliveryRate(NamedTuple):
    """The transactions of all publishers in the last `seconds` seconds."""

    seconds: int
    transactions: int
    sessions: int
    events: int

    @property
    def events_per_second(self) -> float:
        """The mean over these seconds."""
        return round(self.events / self.seconds, 1)


@dataclass(frozen=True, slots=True)
class PublisherStatus:
    """The whole publisher. `parked`: rows by state; `parked_rows`: rows that are still parked, by reason; both counted up to
    `PARKED_LIMIT`.

    `lanes_taken`: how often a process took a lane, also the same lane again; `replays`: unfinished replays, by state.
    """

    identity: OutboxIdentity
    lanes: list[LaneStatus]
    parked: dict[str, int]
    processes: list[Process]
    rates: list[DeliveryRate]
    parked_rows: dict[str, int]
    lanes_taken: int
    replays: dict[str, int]
    parked_topics: dict[str, datetime] = field(default_factory=dict)
    """Missing topics for which a person has decided to park rows, and since when."""

    @property
    def healthy(self) -> bool:
        """Whether no lane is stopped or abandoned."""
        return not any(lane.is_stopped or lane.abandoned for lane in self.lanes)

    def as_json(self) -> dict[str, Any]:
        """Return the status for JSON output."""
        ages = [lane.oldest_undelivered_s for lane in self.lanes if lane.oldest_undelivered_s is not None]
        return {
            "outbox_uuid": str(self.identity.outbox_uuid),
            "cluster_id": self.identity.cluster_id,
            "healthy": self.healthy,
            "processes": [process._asdict() for process in self.processes],
            "lanes": [asdict(lane) for lane in self.lanes],
            "sessions": sum(lane.sessions for lane in self.lanes),
            "events": sum(lane.events for lane in self.lanes),
            "lag_rows": sum(lane.lag_rows for lane in self.lanes),
            "oldest_undelivered_s": max(ages, default=None),
            "parked": self.parked,
            "parked_rows": self.parked_rows,
            "parked_topics": self.parked_topics,
            "lanes_taken": self.lanes_taken,
            "replays": self.replays,
            "rates": [rate._asdict() | {"events_per_second": rate.events_per_second} for rate in self.rates],
        }


def read_status(connection: psycopg.Connection[Any]) -> PublisherStatus:
    """Read the status in one snapshot."""
    with snapshot(connection):
        lanes = read_lanes(connection, COUNT_LIMIT)
        parked = dict(connection.execute(_PARKED["counts"], {"count_limit": PARKED_LIMIT}).fetchall())
        identity = read_identity(connection)
        processes = read_living(connection)
        rates = [DeliveryRate(*row) for row in connection.execute(_DELIVERIES["rates"])]
        parked_rows = dict(
            connection.execute(_PARKED["bounded_counts"], {"count_limit": PARKED_LIMIT}).fetchall()
        )
        taken = connection.execute(_LANES["times_taken"]).fetchone()
        replays = {state: count for state, count, _ in connection.execute(_REPLAYS["unfinished_counts"])}
        topics = parked_topics.standing(connection)
    return PublisherStatus(
        identity,
        lanes,
        parked,
        processes,
        rates,
        parked_rows,
        0 if taken is None else taken[0],
        replays,
        topics,
    )


def read_lanes(connection: psycopg.Connection[Any], count_limit: int) -> list[LaneStatus]:
    """Read the status of every lane. Undelivered rows are counted up to `count_limit` for each lane."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_LANES["statuses"]).fetchall()
    backlogs = []
    for row in rows:
        # An epoch has no rows before its first batch.
        at = max(Cursor(row["cursor_batch"], row["cursor_key"]), Cursor(row.pop("from_batch") - 1))
        backlogs.append(LaneBacklog(row["lane"], at, row.pop("last_batch")))
    backlog.count(connection, backlogs, count_limit)
    return [
        LaneStatus(
            **row,
            lag_rows=left.rows,
            oldest_undelivered_s=None if left.age_s is None else round(left.age_s, 3),
        )
        for row, left in zip(rows, backlogs, strict=True)
    ]
