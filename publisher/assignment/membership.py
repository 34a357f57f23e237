"""Reads processes, epochs and lanes from Postgres, and claims and gives back this process' leases."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from db.connection import snapshot
from db.statements import queries
from publisher.protocol.epochs import Epoch

_EPOCHS = queries("publisher", "epochs")
_LANES = queries("publisher", "lanes")
_LEASES = queries("publisher", "leases")
_PROCESSES = queries("publisher", "processes")
_WAKEUPS = queries("publisher", "wakeups")


class Process(NamedTuple):
    """A living `publisher run`. `alive_until`: when it counts as dead unless it renews its row."""

    process_id: str
    host: str
    pid: int
    started_at: datetime
    alive_until: datetime


@dataclass(frozen=True, slots=True)
class View:
    """Who holds which lane, at one moment. `holders`: each lane of the epoch that has work or a holder -> its holder, None for a free lane.
    `ended`: the lanes among these that have delivered all their rows of the epoch."""

    living: list[Process]
    epoch: Epoch | None
    holders: dict[int, str | None]
    ended: frozenset[int]


def read_living(connection: psycopg.Connection[Any]) -> list[Process]:
    """Return the living processes, oldest first."""
    return [Process._make(row) for row in connection.execute(_PROCESSES["living"])]


def read_view(connection: psycopg.Connection[Any], me: str | None = None) -> View:
    """Read, in one snapshot, the oldest epoch that has not ended, and its lanes; `epoch` is None until the job has made the first.

    `me` keeps a lease until it expires or another process takes it, even if the heartbeat of `me` is late.
    """
    with snapshot(connection):
        living = read_living(connection)
        row = connection.execute(_EPOCHS["current"]).fetchone()
        if row is None:
            return View(living, None, {}, frozenset())
        epoch = Epoch(*row)
        lanes = connection.execute(_LEASES["holders"], {"epoch": epoch.epoch, "me": me}).fetchall()
    holders = {lane: holder for lane, holder, _ in lanes if lane < epoch.lanes}
    return View(living, epoch, holders, frozenset(lane for lane, _, ended in lanes if ended))


def add_lanes(connection: psycopg.Connection[Any], epoch: Epoch) -> None:
    """Insert the missing rows of an epoch's lanes."""
    connection.execute(_LANES["add"], {"epoch": epoch.epoch, "lanes": epoch.lanes})


def claim(
    connection: psycopg.Connection[Any], epoch: Epoch, lanes: Iterable[int], holder: str, lease_s: float
) -> list[int]:
    """Claim the free lanes among these; return the claimed lanes."""
    wanted = {"epoch": epoch.epoch, "lanes": list(lanes), "holder": holder, "lease_s": lease_s}
    return [lane for (lane,) in connection.execute(_LEASES["claim_lanes"], wanted)]


def others_delivered_s_ago(connection: psycopg.Connection[Any], epoch: Epoch, me: str) -> float | None:
    """Return how many seconds ago another holder's lane last delivered in this epoch, None if none has."""
    row = connection.execute(_LEASES["others_delivered"], {"epoch": epoch.epoch, "me": me}).fetchone()
    return None if row is None else row[0]


def release(connection: psycopg.Connection[Any], epoch: Epoch, lanes: Iterable[int], holder: str) -> None:
    """Give back the lanes among these that this holder has."""
    given = {"epoch": epoch.epoch, "lanes": list(lanes), "holder": holder}
    connection.execute(_LEASES["release_lanes"], given)
    wake_publishers(connection)


def release_other_epochs(connection: psycopg.Connection[Any], epoch: Epoch, holder: str) -> None:
    """Give back this holder's lanes of all other epochs."""
    connection.execute(_LEASES["release_other_epochs"], {"epoch": epoch.epoch, "holder": holder})


def wake_publishers(connection: psycopg.Connection[Any]) -> None:
    """Make every process check its lanes at once."""
    connection.execute(_WAKEUPS["wake_publishers"])
