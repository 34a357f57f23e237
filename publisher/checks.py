"""Step 4: may a lane go on from what Kafka says? A pure decision; the words are what the operator reads."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from db.errors import ContinuityError
from publisher import ways_out
from publisher.cursor import Cursor
from publisher.progress import NO_TOTALS, Progress, Totals


class Why(StrEnum):
    """The names of the reasons for which a lane stops."""

    OTHER_OUTBOX = "other_outbox"
    OTHER_CLUSTER = "other_cluster"
    OTHER_PREFIX = "other_transactional_id_prefix"
    OTHER_SERVER = "other_postgres_server"
    DATABASE_RESTORED = "database_restored"
    KAFKA_LOST = "kafka_lost"
    LEDGER_GAP = "ledger_gap"
    NO_SUCH_LANE = "no_such_lane"
    PROGRESS_NOT_COMPACTED = "progress_topic_not_compacted"
    OUTPUT_TOPIC_REPLACED = "output_topic_replaced"
    OUTPUT_TOPIC_MISSING = "output_topic_missing"
    OUTPUT_TOPIC_UNWRITABLE = "output_topic_unwritable"
    OPEN_TRANSACTION = "open_transaction"
    NOT_AUTHORISED = "not_authorised"
    RECORD_REFUSED = "record_refused"
    RESUMING = "resuming"
    UNEXPECTED = "unexpected"


class LaneStoppedError(ContinuityError):
    """A lane must not go on. `retry`: the cause may be mended outside, so the lane looks again by itself."""

    def __init__(self, why: Why, explanation: str, *, retry: bool = False) -> None:
        super().__init__(f"{why}: {explanation}")
        self.why = why
        self.retry = retry


@dataclass(frozen=True, slots=True)
class Identity:
    """Which outbox this is, and the Kafka cluster it is bound to."""

    outbox_uuid: UUID
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Mirror:
    """What Postgres says of a lane: the row of `outbox.lane` and the newest one of `outbox.delivery`."""

    seq: int
    cursor: Cursor
    last_delivery: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a lane goes on: the next transaction is `seq` + 1, the next row is after `cursor`.

    `commit_id` is that of the cursor's ledger row, None before the first batch. `unrecorded`: the last transaction
    has no delivery row yet, because the publisher died between Kafka's commit and Postgres'. `total`: as in Progress.
    """

    seq: int
    cursor: Cursor
    commit_id: UUID | None
    unrecorded: Progress | None = None
    total: Totals = NO_TOTALS


def decide(
    identity: Identity,
    record: Progress | None,
    mirror: Mirror,
    start: Position,
    ledger_commit_id: UUID | None,
) -> Position:
    """Return where the lane goes on; raise LaneStoppedError when Kafka and Postgres do not tell one history.

    `record` is the lane's newest progress record, `start` the beginning of the lane's epoch, `ledger_commit_id` that of
    the ledger's row at the cursor from which the lane would go on (None where there is no such row).
    A resume that Postgres does not know yet is the trace of a crash, whatever Postgres knew before: it stands.
    """
    known = max(mirror.seq, mirror.last_delivery)
    if record is None:
        if known > 0:
            raise LaneStoppedError(
                Why.KAFKA_LOST,
                f"Postgres knows {known} transactions of this lane, Kafka has no progress record of it: the cluster or "
                f"the progress topic was lost, emptied or rebuilt, and the delivered events perhaps with it. {ways_out.LOST}",
            )
        position = start
    else:
        _same_places(identity, record)
        _same_sequence(record, mirror, known)
        unrecorded = record.seq == mirror.seq + 1 or (record.resumed is not None and record.seq > mirror.seq)
        position = Position(
            record.seq, record.cursor, record.commit_id, record if unrecorded else None, record.total
        )
    check_ledger(position, ledger_commit_id)
    return position


def check_ledger(position: Position, ledger_commit_id: UUID | None) -> None:
    """Raise LaneStoppedError unless the ledger's row at the cursor is the one that was delivered."""
    if position.commit_id == ledger_commit_id and (
        ledger_commit_id is not None or position.cursor.batch_id == 0
    ):
        return
    found = "is missing" if ledger_commit_id is None else f"has the commit id {ledger_commit_id}"
    raise LaneStoppedError(
        Why.DATABASE_RESTORED,
        f"Kafka holds what was delivered up to {position.cursor}, commit id {position.commit_id}, but that batch {found} "
        f"in this database: it was restored or failed over to an older state. {ways_out.RESTORED}",
    )


def check_parked(record: Progress, found: int) -> None:
    """Raise LaneStoppedError unless Postgres still has the rows that a transaction put aside; `found` is how many it has."""
    if found < record.parked:
        raise LaneStoppedError(
            Why.DATABASE_RESTORED,
            f"transaction {record.seq}, {record.after} to {record.cursor}, passed {record.parked} parked rows, but "
            f"outbox.parked has {found} of them: the database failed over to a state from before they were parked. "
            f"{ways_out.RESTORED}",
        )


def check_resumed_parked(record: Progress, found: int) -> None:
    """Raise LaneStoppedError unless Postgres has every parked row that a resume left behind its cursor, of which it has `found`."""
    if found < record.total.parked:
        raise LaneStoppedError(
            Why.DATABASE_RESTORED,
            f"`publisher resume` moved this lane to {record.cursor}, with {record.total.parked} parked rows up to there, but "
            f"outbox.parked has {found} of them: the database failed over to a state from before they were parked. "
            f"{ways_out.RESTORED}",
        )


def check_later(later: Collection[tuple[int, int]], newest_epoch: int) -> None:
    """Raise LaneStoppedError where Kafka has records of lane epochs beyond the newest that this ledger knows."""
    unknown = sorted(place for place in later if place[0] > newest_epoch)
    if unknown:
        epoch, lane = unknown[-1]
        raise LaneStoppedError(
            Why.DATABASE_RESTORED,
            f"Kafka has progress records of lane epoch {epoch} (lane {lane}), but the newest that this database knows is "
            f"{newest_epoch}: it was restored or failed over to a state from before the lanes were changed. {ways_out.RESTORED}",
        )


def _same_places(identity: Identity, record: Progress) -> None:
    if record.outbox_uuid != identity.outbox_uuid:
        raise LaneStoppedError(
            Why.OTHER_OUTBOX,
            f"the progress record belongs to outbox {record.outbox_uuid}, this database is {identity.outbox_uuid}: "
            "something else writes to this progress topic. Give each outbox its own [publisher] progress_topic",
        )
    if record.cluster_id != identity.cluster_id:
        raise LaneStoppedError(
            Why.OTHER_CLUSTER,
            f"the progress record was written on Kafka cluster {record.cluster_id}, this one is {identity.cluster_id}: "
            f"the topics were copied, and offsets and transactions do not carry over. {ways_out.COPIED_TOPIC}",
        )


def _same_sequence(record: Progress, mirror: Mirror, known: int) -> None:
    if known > record.seq:
        raise LaneStoppedError(
            Why.KAFKA_LOST,
            f"Postgres knows {known} transactions of this lane, Kafka only {record.seq}: Kafka lost committed data, or "
            f"was restored to an older state. {ways_out.SET_BACK}",
        )
    if record.seq > mirror.seq + 1 and record.resumed is None:
        raise LaneStoppedError(
            Why.DATABASE_RESTORED,
            f"Kafka has {record.seq} transactions of this lane, Postgres knows {mirror.seq}; a crash explains one, not "
            f"more: the database was restored or failed over to an older state. {ways_out.RESTORED}",
        )
    if record.seq == mirror.seq and record.cursor != mirror.cursor:
        raise LaneStoppedError(
            Why.DATABASE_RESTORED,
            f"transaction {record.seq} ended at {record.cursor} for Kafka, at {mirror.cursor} for Postgres: the two come "
            f"from different histories. {ways_out.RESTORED}",
        )
