"""Reads and writes the rows of `outbox.replay`, and the lease of the process that runs a replay."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import orjson
import psycopg
from psycopg.types.json import Jsonb

from contract.cursor import Cursor
from db import operations
from db.statements import queries
from publisher.outbox.lease import LeaseLostError
from publisher.protocol.replay_targets import ReplayTargets
from publisher.replay.progress_record import ReplayProgress
from service.errors import SettingsError

_REPLAYS = queries("publisher", "replays")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Replay:
    """A row of `outbox.replay`. Batches are inclusive. `held`: whether a living process runs the replay."""

    replay_id: int
    replay_uuid: UUID
    state: str
    reason: str | None
    from_batch: int
    to_batch: int
    topics: list[str] | None
    only_keys: bool
    requested: dict[str, Any]
    target_topic: str | None
    target_cluster_id: str
    target_servers: str
    events_per_second: int | None
    rows_total: int
    events_total: int
    lease_holder: str | None
    held: bool
    seq: int
    cursor_batch: int
    cursor_key: str | None
    rows_sent: int
    events_sent: int
    rows_skipped: int
    measured_rate: float | None
    created_at: datetime
    state_changed_at: datetime
    from_archive: bool

    @property
    def targets(self) -> ReplayTargets:
        """The target topics."""
        return ReplayTargets.of_text(self.target_topic)

    @property
    def shown_state(self) -> str:
        """The state for people. A running replay without a living process is `stopped` if it has a reason, else `interrupted`."""
        if self.state != "running" or self.held:
            return self.state
        return "interrupted" if self.reason is None else "stopped"

    @property
    def eta(self) -> datetime | None:
        """When the replay ends at its present speed; None if it does not run, or its speed is not known yet."""
        if self.state != "running" or not self.held or not self.measured_rate:
            return None
        return datetime.now(UTC) + timedelta(
            seconds=(self.events_total - self.events_sent) / self.measured_rate
        )

    def as_json(self) -> dict[str, Any]:
        """Return the replay for JSON output."""
        return asdict(self) | {"state": self.shown_state, "eta": self.eta}


class NewReplay(NamedTuple):
    """The columns of a new replay, named as in `outbox.replay`."""

    from_batch: int
    to_batch: int
    topics: list[str] | None
    requested: dict[str, Any]
    target_topic: str | None
    target_cluster_id: str
    target_servers: str
    events_per_second: int | None
    rows_total: int
    events_total: int
    from_archive: bool


def create(connection: Connection, new: NewReplay, keys: Sequence[str] | None) -> Replay:
    """Insert a replay and its keys in one transaction."""
    parameters = new._asdict() | {
        "requested": Jsonb(new.requested, dumps=orjson.dumps),
        "only_keys": keys is not None,
    }
    with connection.transaction(), connection.cursor() as cursor:
        row = cursor.execute(_REPLAYS["create"], parameters).fetchone()
        replay_id: int = row[0] if row is not None else 0
        if keys is not None:
            with cursor.copy(_REPLAYS["copy_keys"]) as copy:
                for key in keys:
                    copy.write_row((replay_id, key))
        asked = new._asdict() | {"keys": None if keys is None else len(keys), "requested": None}
        operations.record(connection, "publisher replay start", asked, {"replay": replay_id})
    return load(connection, replay_id)


def listed(connection: Connection, *, all_states: bool) -> list[Replay]:
    """Return the replays that have not ended, or all, oldest first."""
    return _rows(connection, None, all_states)


def load(connection: Connection, replay_id: int) -> Replay:
    """Return a replay. Raises SettingsError if it does not exist."""
    found = _rows(connection, replay_id, True)
    if not found:
        raise SettingsError(f"there is no replay {replay_id}; `publisher replay list --all` shows them")
    return found[0]


def keys(connection: Connection, replay_id: int) -> list[str]:
    """Return the session keys that a replay is limited to, in order."""
    rows = connection.execute(_REPLAYS["keys"], {"replay_id": replay_id})
    return [key for (key,) in rows]


def change(connection: Connection, replay_id: int, state: str) -> Replay:
    """Pause or cancel a replay. Raises SettingsError if it has ended."""
    command = {"paused": "publisher replay pause", "cancelled": "publisher replay cancel"}[state]
    with connection.transaction():
        changed = connection.execute(_REPLAYS["change"], {"replay_id": replay_id, "state": state}).rowcount
        if changed:
            operations.record(connection, command, {"replay": replay_id}, {"state": state})
    found = load(connection, replay_id)
    if changed != 1 and found.state != state:
        raise SettingsError(f"replay {replay_id} is {found.state}: there is nothing left to change")
    return found


def set_rate(connection: Connection, replay_id: int, rate: int | None) -> None:
    """Change the rate (None: no limit). The new rate applies the next time the replay starts."""
    with connection.transaction():
        connection.execute(_REPLAYS["set_rate"], {"replay_id": replay_id, "events_per_second": rate})
        operations.record(
            connection, "publisher replay go-on", {"replay": replay_id}, {"events_per_second": rate}
        )


def _rows(connection: Connection, replay_id: int | None, all_states: bool) -> list[Replay]:
    found = connection.execute(_REPLAYS["list"], {"replay_id": replay_id, "all_states": all_states})
    return [Replay(*row) for row in found.fetchall()]


class ReplayLease:
    """A held lease on a replay, with the mirror at the time of the claim. It keeps erasure away from rows that were read; Kafka fences."""

    def __init__(self, replay_id: int, seconds: float, row: tuple[Any, ...]) -> None:
        self._parameters = {"replay_id": replay_id, "lease_token": row[0], "lease_s": seconds}
        self.seq: int = row[1]
        self.cursor = Cursor(row[2], row[3])

    @classmethod
    def claim(
        cls, connection: Connection, replay_id: int, holder: str, seconds: float, *, paused_too: bool
    ) -> "ReplayLease | None":
        """Claim the lease if the replay is running and no living process holds the lease. `paused_too`: also if the replay is paused."""
        parameters = {"replay_id": replay_id, "holder": holder, "lease_s": seconds, "paused_too": paused_too}
        with connection.transaction():
            row = connection.execute(_REPLAYS["claim"], parameters).fetchone()
            if row is not None and paused_too:
                operations.record(
                    connection, "publisher replay go-on", {"replay": replay_id}, {"state": "running"}
                )
        return None if row is None else cls(replay_id, seconds, row)

    def renew(self, connection: Connection) -> str:
        """Extend the lease; return the replay's state. Raises LeaseLostError."""
        return self._state(connection, _REPLAYS["renew"], self._parameters)

    def still_held(self, connection: Connection) -> bool:
        """Extend the lease; return False if it has expired or another process holds it. Rows that were read may then have been erased."""
        return connection.execute(_REPLAYS["hold"], self._parameters).rowcount == 1

    def mirror(self, connection: Connection, progress: ReplayProgress, rate: float | None) -> str:
        """Update the mirror after Kafka's commit; return the replay's state. Raises LeaseLostError."""
        return self._state(
            connection,
            _REPLAYS["mirror"],
            self._parameters
            | {
                "seq": progress.seq,
                "to_batch": progress.cursor.batch_id,
                "to_key": progress.cursor.session_key,
                "rows_sent": progress.rows,
                "events_sent": progress.events,
                "rows_skipped": progress.skipped,
                "measured_rate": rate,
            },
        )

    def finish(self, connection: Connection, reason: str | None) -> bool:
        """Mark the replay as done; return False if it was paused, cancelled or taken over meanwhile."""
        parameters = self._parameters | {"reason": reason}
        return connection.execute(_REPLAYS["finish"], parameters).rowcount == 1

    def release(self, connection: Connection, reason: str | None, *, may_be_open: bool) -> None:
        """Give the lease back if this process still holds it, and record the reason, if there is one.

        `may_be_open`: a transaction may still be committed, so an erasure must wait until the lease has expired.
        """
        query = _REPLAYS["leave"] if may_be_open else _REPLAYS["release"]
        connection.execute(query, self._parameters | {"reason": reason})

    def _state(self, connection: Connection, query: LiteralString, parameters: dict[str, Any]) -> str:
        row = connection.execute(query, parameters).fetchone()
        if row is None:
            raise LeaseLostError(
                f"another process works on replay {parameters['replay_id']} now; `publisher replay list` shows it"
            )
        return str(row[0])
