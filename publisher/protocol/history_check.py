"""Step 4, check history: decides whether Kafka and Postgres agree, and where a lane continues. Pure; operators read its messages.

If Kafka has lost records that the running process wrote, kafka/written_ends.py refuses the smaller end before this check, until a restart.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from contract.cursor import Cursor
from contract.progress import NO_TOTALS, Progress, Totals
from publisher.protocol.epochs import LaneId
from publisher.protocol.remediation import LANE, RESTORED, Remediation
from publisher.protocol.stop_reasons import StoppedError, StopReason

MOST_AHEAD = 2**53
"""The most transactions, sessions, events or parked rows by which Kafka can be ahead of a restored database."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which outbox this is, and the Kafka cluster it is bound to."""

    outbox_uuid: UUID
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Mirror:
    """Postgres' state of a lane: its row of `outbox.lane` and the newest row of `outbox.delivery`."""

    seq: int
    cursor: Cursor
    last_delivery: int
    resuming: bool = False
    """A resume has begun to move the lane, and Postgres has no record of its end."""


class CommittedProgress(Protocol):
    """A progress record of the committed transaction `seq`."""

    @property
    def outbox_uuid(self) -> UUID: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def commit_id(self) -> UUID | None: ...
    @property
    def total(self) -> Totals: ...
    @property
    def resumed(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class DeliveryPosition:
    """Where to continue: the next transaction is `seq` + 1, the next row is after `cursor`.

    `commit_id`: the commit id of the cursor's batch, None before the first batch. `unrecorded`: the last transaction, if it is not in
    Postgres yet because the publisher died between Kafka's commit and Postgres'. `total`: as in Progress.
    """

    seq: int
    cursor: Cursor
    commit_id: UUID | None
    unrecorded: CommittedProgress | None = None
    total: Totals = NO_TOTALS


def continue_from(
    identity: Identity,
    record: CommittedProgress | None,
    mirror: Mirror,
    start: DeliveryPosition,
    ledger_commit_id: UUID | None,
    remediation: Remediation = LANE,
) -> DeliveryPosition:
    """Return where to continue; raise StoppedError if the histories of Kafka and Postgres differ.

    `record`: the newest progress record. `start`: where the first transaction begins. `ledger_commit_id`: the ledger's commit id at the
    cursor of `record`, or of `start` without a record; None if the ledger has no such row.
    A resume that only Kafka has is valid, however many transactions Postgres is behind: a crash kept Postgres from recording it.
    """
    known = max(mirror.seq, mirror.last_delivery)
    if record is None:
        if known > 0:
            raise StoppedError(
                StopReason.KAFKA_LOST,
                f"Postgres knows {known} transactions of {remediation.subject}, Kafka has no progress record of it: the cluster or "
                "the progress topic was lost, emptied or rebuilt, and the delivered events perhaps with it. "
                f"{remediation.lost}",
            )
        position = start
    else:
        _same_outbox_and_cluster(identity, record, remediation)
        _require_commit_id(record, mirror, remediation)
        _counts_as_a_lane(record, mirror, remediation)
        _same_sequence(record, mirror, known, remediation)
        unrecorded = record if is_unrecorded(record, mirror.seq) else None
        position = DeliveryPosition(record.seq, record.cursor, record.commit_id, unrecorded, record.total)
    check_ledger(position, ledger_commit_id, remediation)
    return position


def is_unrecorded(record: CommittedProgress, mirror_seq: int) -> bool:
    """Whether Kafka's newest transaction lacks its row in Postgres because of a crash between the two commits.

    A resume's number may exceed Postgres' by more than one, because a restored database may have lost the transactions in between.
    """
    return record.seq == mirror_seq + 1 or (record.resumed is not None and record.seq > mirror_seq)


def check_ledger(
    position: DeliveryPosition, ledger_commit_id: UUID | None, remediation: Remediation = LANE
) -> None:
    """Raise StoppedError unless the ledger's row at the cursor is the one that was delivered."""
    if position.commit_id == ledger_commit_id and (
        ledger_commit_id is not None or position.cursor.batch_id == 0
    ):
        return
    found = "is missing" if ledger_commit_id is None else f"has the commit id {ledger_commit_id}"
    raise StoppedError(
        StopReason.DATABASE_RESTORED,
        f"Kafka holds what {remediation.subject} sent up to {position.cursor}, commit id {position.commit_id}, but that batch {found} "
        f"in this database: it was restored or failed over to an older state. {remediation.restored}",
    )


def check_parked(record: Progress, found: int) -> None:
    """Raise StoppedError unless Postgres still has all rows that a transaction parked. `found`: how many it has."""
    if found < record.parked:
        raise StoppedError(
            StopReason.DATABASE_RESTORED,
            f"transaction {record.seq}, {record.after} to {record.cursor}, passed {record.parked} parked rows, but "
            f"outbox.parked has {found} of them: the database failed over to a state from before they were parked. "
            f"{RESTORED}",
        )


def check_resumed_parked(record: Progress, found: int) -> None:
    """Raise StoppedError unless Postgres still has all rows that were parked up to the cursor to which a resume moved the lane.

    `found`: how many Postgres has.
    """
    if found < record.total.parked:
        raise StoppedError(
            StopReason.DATABASE_RESTORED,
            f"`publisher resume` moved this lane to {record.cursor}, with {record.total.parked} parked rows up to there, but "
            f"outbox.parked has {found} of them: the database failed over to a state from before they were parked. "
            f"{RESTORED}",
        )


def check_later(later: Collection[LaneId], newest_epoch: int) -> None:
    """Raise StoppedError if Kafka has records of lane epochs after the newest epoch in this ledger."""
    unknown = sorted(lane_id for lane_id in later if lane_id[0] > newest_epoch)
    if unknown:
        epoch, lane = unknown[-1]
        raise StoppedError(
            StopReason.DATABASE_RESTORED,
            f"Kafka has progress records of lane epoch {epoch} (lane {lane}), but the newest that this database knows is "
            f"{newest_epoch}: it was restored or failed over to a state from before the lanes were changed. {RESTORED}",
        )


def _same_outbox_and_cluster(identity: Identity, record: CommittedProgress, remediation: Remediation) -> None:
    if record.outbox_uuid != identity.outbox_uuid:
        raise StoppedError(
            StopReason.OTHER_OUTBOX,
            f"the progress record belongs to outbox {record.outbox_uuid}, this database is {identity.outbox_uuid}: "
            f"something else writes to this progress topic. {remediation.other_outbox}",
        )
    if record.cluster_id != identity.cluster_id:
        raise StoppedError(
            StopReason.OTHER_CLUSTER,
            f"the progress record was written on Kafka cluster {record.cluster_id}, this one is {identity.cluster_id}: "
            f"the topics were copied, and offsets and transactions do not carry over. {remediation.copied_topic}",
        )


def _require_commit_id(record: CommittedProgress, mirror: Mirror, remediation: Remediation) -> None:
    """Raise StoppedError for a record without a commit id.

    Commit ids are random, so only a program that reads the ledger can write a valid record. Exception: a cursor before the first batch
    has no commit id. Only a resume moves a lane there, and Postgres has that resume's mark or record.
    """
    if record.commit_id is not None or (
        record.cursor.batch_id == 0 and (mirror.resuming or record.seq <= mirror.seq)
    ):
        return
    raise StoppedError(
        StopReason.OTHER_OUTBOX,
        f"progress record {record.seq} of {remediation.subject} names no commit id for its cursor {record.cursor}, and Postgres knows of "
        f"no resume to there: something else writes to this progress topic. {remediation.forged}",
    )


def _counts_as_a_lane(record: CommittedProgress, mirror: Mirror, remediation: Remediation) -> None:
    """Raise StoppedError for a number that no lane reaches: the numbers after it would not fit into Postgres' columns."""
    if record.seq - mirror.seq > MOST_AHEAD:
        raise StoppedError(
            StopReason.OTHER_OUTBOX,
            f"the newest progress record of {remediation.subject} is number {record.seq}, Postgres knows {mirror.seq}: something else "
            f"writes to this progress topic. {remediation.forged}",
        )


def _same_sequence(record: CommittedProgress, mirror: Mirror, known: int, remediation: Remediation) -> None:
    if known > record.seq:
        raise StoppedError(
            StopReason.KAFKA_LOST,
            f"Postgres knows {known} transactions of {remediation.subject}, Kafka only {record.seq}: Kafka lost committed data, or "
            f"was restored to an older state. {remediation.set_back}",
        )
    if record.seq > mirror.seq + 1 and record.resumed is None:
        raise StoppedError(
            StopReason.DATABASE_RESTORED,
            f"Kafka has {record.seq} transactions of {remediation.subject}, Postgres knows {mirror.seq}; a crash explains one, not "
            f"more: the database was restored or failed over to an older state. {remediation.restored}",
        )
    if record.seq == mirror.seq and record.cursor != mirror.cursor:
        raise StoppedError(
            StopReason.DATABASE_RESTORED,
            f"transaction {record.seq} ended at {record.cursor} for Kafka, at {mirror.cursor} for Postgres: the two come "
            f"from different histories. {remediation.restored}",
        )
