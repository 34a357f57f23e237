"""A replay's place, kept in the target's Kafka inside the transactions that carry its events. Its form and its check; pure."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from publisher.cursor import Cursor
from publisher.replay.errors import ReplayStoppedError, Why

PARTITIONS = 16
"""Of the replays' progress topic: an open transaction hides the records behind it from the replays of its partition only."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """What a replay has done after its transaction number `seq`. `rows`, `events` and `skipped` count from its beginning.

    `cursor`: everything up to it is through, and its batch has `commit_id`. `topics`: the ids of the topics written so far.
    """

    outbox_uuid: UUID
    cluster_id: str
    replay_uuid: UUID
    seq: int
    cursor: Cursor
    commit_id: UUID
    rows: int
    events: int
    skipped: int
    topics: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the record's value, a JSON object."""
        return orjson.dumps(
            {
                "version": 1,
                "outbox_uuid": self.outbox_uuid,
                "cluster_id": self.cluster_id,
                "replay_uuid": self.replay_uuid,
                "seq": self.seq,
                "cursor": [self.cursor.batch_id, self.cursor.session_key],
                "commit_id": self.commit_id,
                "rows": self.rows,
                "events": self.events,
                "skipped": self.skipped,
                "topics": self.topics,
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> "ReplayProgress":
        """Read a record's value. Raises ValueError when it is not a progress record this code knows."""
        try:
            fields: dict[str, Any] = orjson.loads(value)
            if fields["version"] != 1:
                raise ValueError(f"progress record of version {fields['version']}, this publisher knows 1")
            batch_id, session_key = fields["cursor"]
            return cls(
                outbox_uuid=UUID(fields["outbox_uuid"]),
                cluster_id=str(fields["cluster_id"]),
                replay_uuid=UUID(fields["replay_uuid"]),
                seq=int(fields["seq"]),
                cursor=Cursor(int(batch_id), None if session_key is None else str(session_key)),
                commit_id=UUID(fields["commit_id"]),
                rows=int(fields["rows"]),
                events=int(fields["events"]),
                skipped=int(fields["skipped"]),
                topics=dict(fields["topics"]),
            )
        except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"not a replay's progress record: {value[:200]!r}") from error


def progress_key(replay_uuid: UUID) -> bytes:
    """Return the key of a replay's records: its uuid, because a database that was set back gives its number away again."""
    return str(replay_uuid).encode()


def progress_partition(replay_id: int) -> int:
    """Return the partition of a replay's records."""
    return replay_id % PARTITIONS


ANEW = (
    "What it has sent cannot be told any more, so it cannot go on. `publisher replay cancel {id}` and start a new one for the "
    "rest; consumers tell the two apart by the header outbox-replay, and deduplicate on outbox-id"
)


def decide(
    replay_id: int,
    outbox_uuid: UUID,
    cluster_id: str,
    record: ReplayProgress | None,
    seq: int,
    cursor: Cursor,
) -> None:
    """Raise ReplayStoppedError unless Kafka's newest record and the mirror in Postgres (`seq`, `cursor`) tell one history.

    A record that is one ahead of the mirror is the trace of a crash between the two commits.
    """
    anew = ANEW.format(id=replay_id)
    if record is None:
        if seq > 0:
            raise ReplayStoppedError(
                Why.KAFKA_LOST,
                f"Postgres knows {seq} transactions of replay {replay_id}, Kafka has no progress record of it: the target or its "
                f"progress topic was lost, emptied or rebuilt. {anew}",
            )
        return
    if record.outbox_uuid != outbox_uuid:
        raise ReplayStoppedError(
            Why.OTHER_OUTBOX,
            f"the progress record belongs to outbox {record.outbox_uuid}, this database is {outbox_uuid}: something else writes "
            f"to this progress topic. {anew}",
        )
    if record.cluster_id != cluster_id:
        raise ReplayStoppedError(
            Why.OTHER_CLUSTER,
            f"the progress record was written on Kafka cluster {record.cluster_id}, this one is {cluster_id}: the topics were "
            f"copied, and transactions do not carry over. {anew}",
        )
    if seq > record.seq:
        raise ReplayStoppedError(
            Why.KAFKA_LOST,
            f"Postgres knows {seq} transactions of replay {replay_id}, Kafka only {record.seq}: Kafka lost committed data, or was "
            f"restored to an older state. {anew}",
        )
    if record.seq > seq + 1 or (record.seq == seq and record.cursor != cursor):
        raise ReplayStoppedError(
            Why.DATABASE_RESTORED,
            f"Kafka has {record.seq} transactions of replay {replay_id}, the last up to {record.cursor}; Postgres knows {seq}, up to "
            f"{cursor}. A crash explains one that is missing, not more: the database was restored or failed over to an older "
            f"state. {anew}",
        )


def check_ledger(replay_id: int, cursor: Cursor, sent: UUID, found: UUID | None) -> None:
    """Raise ReplayStoppedError unless the ledger's row at the cursor (`found`) is the one that was there when it was sent."""
    if found == sent:
        return
    what = "is missing" if found is None else f"has the commit id {found}"
    raise ReplayStoppedError(
        Why.DATABASE_RESTORED,
        f"replay {replay_id} has sent everything up to {cursor}, commit id {sent}, but that batch {what} in this database: it "
        f"was restored or failed over to an older state. {ANEW.format(id=replay_id)}",
    )
