"""Decides where `publisher resume` lets a lane continue, and which rows that repeats or skips. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from contract.cursor import Cursor
from contract.progress import NO_TOTALS, Progress, Totals
from publisher.protocol.epochs import Epoch, LaneId
from publisher.protocol.history_check import DeliveryPosition, Identity, Mirror, check_later, continue_from
from publisher.protocol.stop_reasons import StoppedError
from service.errors import ContinuityError


class Way(StrEnum):
    """The values of `--from`."""

    KAFKA = "kafka"
    MIRROR = "mirror"
    BATCH = "batch"
    BEGINNING = "beginning"


@dataclass(frozen=True)
class LaneSurvey:
    """The state of one lane in Kafka and Postgres.

    `newest`: the newest record that this outbox may have written. `foreign`: why a still newer record is not this outbox's, None if there
    is no such record. `shared`: the newest progress record that agrees with this ledger. `from_start`: whether Kafka shows that the lane
    began at its epoch's start. `later`: records of lane epochs that this ledger does not have, None for each that is not this outbox's.
    `epoch_end`: as in LaneChunk.
    """

    epoch: Epoch
    epoch_end: int | None
    lane: int
    newest: Progress | None
    shared: Progress | None
    from_start: bool
    later: dict[LaneId, Progress | None]
    mirror: Mirror
    mirror_total: Totals
    mirror_sound: bool
    """Whether the ledger's row at the mirror's cursor is the row that was delivered."""
    stopped: bool
    start_commit_id: UUID | None = None
    foreign: str | None = None

    @property
    def start(self) -> Cursor:
        """The beginning of the lane's epoch."""
        return Cursor(self.epoch.from_batch - 1)

    @property
    def kafka(self) -> Cursor | None:
        """The cursor up to which Kafka has this ledger's rows, None if Kafka shows none."""
        if self.shared is not None:
            return self.shared.cursor
        return self.start if self.from_start or self._fresh else None

    @property
    def postgres(self) -> Cursor:
        """The cursor up to which Postgres has recorded deliveries."""
        return self.mirror.cursor if self.mirror.seq > 0 else self.start

    @property
    def known_seq(self) -> int:
        """The greatest number that any known transaction of this lane has."""
        return max(
            self.newest.seq if self.newest is not None else 0, self.mirror.seq, self.mirror.last_delivery
        )

    @property
    def _fresh(self) -> bool:
        return self.newest is None and max(self.mirror.seq, self.mirror.last_delivery) == 0


class ResendRange(NamedTuple):
    """Rows after the first cursor, up to and including the second cursor. Empty if the second is not beyond the first."""

    after: Cursor
    to: Cursor


@dataclass(frozen=True)
class Move:
    """How one lane continues. `again`: rows that are sent again. `skipped`: rows that were never sent, and will not be.

    `trusted`: rows that are left out because Postgres recorded them as delivered, though Kafka does not show it.
    `unknown`: what Kafka has from after the point at which the histories diverged.
    """

    found: LaneSurvey
    to: Cursor
    again: ResendRange
    skipped: ResendRange
    trusted: ResendRange
    unknown: Totals = field(default=NO_TOTALS)

    @property
    def delivered(self) -> Cursor:
        """The cursor up to which Kafka or Postgres shows that this ledger's rows were delivered."""
        return self.again.to


def healthy(identity: Identity, found: LaneSurvey, newest_epoch: int) -> DeliveryPosition | None:
    """Return the position after which the lane would continue by itself, None if it would stop."""
    if found.foreign is not None:
        return None
    commit_id = found.start_commit_id if found.newest is None else None
    if found.newest is not None and found.newest is found.shared:
        commit_id = found.newest.commit_id
    try:
        check_later(found.later, newest_epoch)
        start = DeliveryPosition(0, found.start, found.start_commit_id)
        return continue_from(identity, found.newest, found.mirror, start, commit_id)
    except StoppedError:
        return None


def target(found: LaneSurvey, way: Way, batch: int, position: DeliveryPosition | None) -> Cursor:
    """Return the cursor after which to continue. `batch`: the first batch to send, for the ways that name one; `position`: see `healthy`.

    Raises ContinuityError if this way is not possible for the lane.
    """
    if way in (Way.KAFKA, Way.MIRROR) and position is not None:
        return position.cursor
    if way is Way.KAFKA:
        if found.kafka is None:
            raise ContinuityError(_nothing_shared(found))
        return found.kafka
    if way is Way.MIRROR:
        if not found.mirror_sound:
            raise ContinuityError(
                f"lane {found.lane} of epoch {found.epoch.epoch}: Postgres recorded deliveries up to {found.postgres}, but "
                "the ledger's row of that batch is missing or a different one. Nothing was changed. "
                "`publisher resume --from batch N` says from where to send"
            )
        return found.postgres
    last = found.epoch_end if found.epoch_end is not None else batch - 1
    return Cursor(max(found.start.batch_id, min(batch - 1, last)))


def move(found: LaneSurvey, to: Cursor) -> Move:
    """Return the move to `to`, with the rows that it repeats and skips."""
    by_kafka = found.kafka or found.start
    delivered = max(by_kafka, found.postgres)
    unknown = NO_TOTALS
    if found.newest is not None and found.newest is not found.shared:
        base = found.shared.total if found.shared is not None else found.mirror_total
        unknown = found.newest.total.minus(base)
    for record in found.later.values():
        if record is not None:
            unknown = unknown.plus(record.total.sessions, record.total.events, record.total.parked)
    return Move(
        found,
        to,
        again=ResendRange(to, delivered),
        skipped=ResendRange(delivered, to),
        trusted=ResendRange(by_kafka, min(to, delivered)),
        unknown=unknown,
    )


def _nothing_shared(found: LaneSurvey) -> str:
    lane = f"lane {found.lane} of epoch {found.epoch.epoch}"
    if found.newest is None:
        finding = f"Kafka has no progress record of {lane}"
    else:
        finding = (
            f"Kafka's progress records of {lane}, the newest at {found.newest.cursor}, belong to batches that this ledger "
            "does not have or not as they were"
        )
    return (
        f"{finding}, so it does not say where to continue. Nothing was changed. `publisher resume --from mirror` continues after "
        f"{found.postgres}, where Postgres recorded the last delivery; `publisher resume --from beginning` or `--from batch N` "
        "sends from there on, whatever Kafka has"
    )
