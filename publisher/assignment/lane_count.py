"""Reads and changes the lane count. Each epoch has a lane count, valid from the epoch's first batch on; a change opens a new epoch.

When a change is refused is decided in Postgres: `outbox.change_lanes` in db/schema.sql.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import psycopg

from db import operations
from db.statements import queries
from publisher.assignment import membership
from publisher.assignment.membership import Process
from service.errors import OutboxError, UnavailableError

_EPOCHS = queries("publisher", "epochs")


class LanesNotChangedError(OutboxError):
    """The lane count cannot be changed now."""


class EpochState(StrEnum):
    """The state of an epoch."""

    ENDED = "ended"
    CURRENT = "current"
    WAITING = "waiting"


class EpochRow(NamedTuple):
    """One epoch. `to_batch`: None for the newest epoch. `ended`: how many lanes have delivered all their rows of it."""

    epoch: int
    from_batch: int
    to_batch: int | None
    lanes: int
    created_at: datetime
    ended: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """Every epoch, and who runs the lanes of the current one. `holders`: lane -> process id, None for a free lane."""

    epochs: list[EpochRow]
    current: int | None
    processes: list[Process]
    holders: dict[int, str | None]

    def state(self, epoch: EpochRow) -> EpochState:
        """Return whether an epoch has ended, is being delivered, or waits for the one before it."""
        if self.current is None or epoch.epoch > self.current:
            return EpochState.WAITING
        return EpochState.CURRENT if epoch.epoch == self.current else EpochState.ENDED

    def held_by(self, process_id: str) -> list[int]:
        """Return the lanes of the current epoch that a process holds."""
        return sorted(lane for lane, holder in self.holders.items() if holder == process_id)

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        return {
            "epochs": [epoch._asdict() | {"state": self.state(epoch)} for epoch in self.epochs],
            "processes": [
                process._asdict() | {"lanes": self.held_by(process.process_id)} for process in self.processes
            ],
            "holders": {str(lane): holder for lane, holder in self.holders.items()},
        }


@dataclass(frozen=True, slots=True)
class LaneCountChange:
    """A new epoch with `lanes` lanes from batch `from_batch` on; the epoch before it has `before` lanes."""

    epoch: int
    from_batch: int
    lanes: int
    before: int

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        return asdict(self)


def read_lanes(connection: psycopg.Connection[Any]) -> Lanes:
    """Read epochs, processes and holders."""
    view = membership.read_view(connection)
    rows = connection.execute(_EPOCHS["all"]).fetchall()
    current = None if view.epoch is None else view.epoch.epoch
    # The view omits lanes that have ended and have no holder.
    holders = {} if view.epoch is None else dict.fromkeys(range(view.epoch.lanes)) | view.holders
    return Lanes([EpochRow._make(row) for row in rows], current, view.living, holders)


def change_lanes(connection: psycopg.Connection[Any], lanes: int) -> LaneCountChange | None:
    """Open a new epoch with this many lanes; return None if the newest epoch has as many already.

    Raises LanesNotChangedError, and UnavailableError if the job holds the writer lock for longer than the lock timeout.
    """
    try:
        with connection.transaction():
            row = connection.execute(_EPOCHS["change_lanes"], {"lanes": lanes}).fetchone()
            if row is None:
                raise RuntimeError("change_lanes returned nothing")
            found = {"epoch": row[0], "from_batch": row[1]}
            operations.record(connection, "publisher lanes set", {"lanes": lanes}, found)
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        _explain(error)
        return None
    except psycopg.errors.LockNotAvailable as error:
        raise UnavailableError(
            "the job is writing a batch and has held the writer lock for longer than [postgres] lock_timeout_ms. Nothing was "
            "changed; try again, or with a longer OUTBOX_POSTGRES__LOCK_TIMEOUT_MS"
        ) from error
    epochs = [EpochRow._make(found) for found in connection.execute(_EPOCHS["all"])]
    before = max(epoch for epoch in epochs if epoch.epoch < row[0])
    return LaneCountChange(row[0], row[1], lanes, before.lanes)


def _explain(error: psycopg.Error) -> None:
    """Raise the reason why the lane count cannot change; return if it already has the requested value."""
    match error.diag.constraint_name:
        case "change_lanes_same":
            return
        case "change_lanes_no_epoch":
            raise LanesNotChangedError(
                "there are no lanes yet: the job makes the first ones when it starts, as many as [publisher] lanes "
                "(OUTBOX_PUBLISHER__LANES) says. Set that, and start `spark-job run`"
            ) from error
        case "change_lanes_no_batch":
            raise LanesNotChangedError(
                f"{error.diag.message_primary}: a change takes effect with the next batch, and the last change still waits for its first "
                "one. Try again when the job has committed a batch (`spark-job status`)"
            ) from error
        case _:
            raise error
