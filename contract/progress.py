"""The progress record: a lane's position, written to Kafka in the same transaction as the events. Pure.

The progress topic is compacted and has one partition for each lane. The publisher writes the records and continues from the newest; the
job reads them at its start, to learn whether the database has lost batches that were delivered.
"""

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from contract.cursor import Cursor

_KEY = re.compile(rb"(\d{1,9})/(\d{1,9})")
_MAX_NUMBER = 2**63 - 1
_MOST_BYTES = 2 << 20
"""Largest value that is parsed. The publisher's are smaller: topics take 1 MB by default."""
_MAX_CHARS = 10_000
"""Longest text in a record. The publisher's texts have about a tenth of this length at most; a longer one, from another writer, would
fill logs and tables."""


def progress_topic(prefix: str, outbox_uuid: UUID) -> str:
    """Return the name of an outbox's progress topic. `prefix`: [publisher] progress_topic."""
    return f"{prefix}-{outbox_uuid}"


@dataclass(frozen=True, slots=True)
class Totals:
    """What a lane has done in all its transactions; repeats count again.

    `parked`: rows up to the cursor that were parked; Postgres must have the same number.
    """

    sessions: int = 0
    events: int = 0
    parked: int = 0

    def plus(self, sessions: int, events: int, parked: int) -> "Totals":
        """Return the totals after one more transaction."""
        return Totals(self.sessions + sessions, self.events + events, self.parked + parked)

    def minus(self, earlier: "Totals") -> "Totals":
        """Return what came after earlier totals."""
        return Totals(
            max(0, self.sessions - earlier.sessions),
            max(0, self.events - earlier.events),
            max(0, self.parked - earlier.parked),
        )


NO_TOTALS = Totals()


@dataclass(frozen=True, slots=True)
class Progress:
    """Transaction number `seq` of a lane: it moved the lane from `after` (exclusive) to `cursor`, whose batch has `commit_id`.

    `parked` counts the rows in between that were parked in Postgres instead of sent; `total` includes this transaction.
    `commit_id` is None only if the cursor is before the first batch, which a resume may choose.
    `resumed`: how `publisher resume` moved the cursor, as text. The transaction of a resume carried no events; its `after` is the position
    up to which the lane was known to be delivered, which may lie before or beyond the cursor.
    """

    outbox_uuid: UUID
    cluster_id: str
    epoch: int
    lane: int
    seq: int
    after: Cursor
    cursor: Cursor
    commit_id: UUID | None
    sessions: int
    events: int
    parked: int = 0
    total: Totals = NO_TOTALS
    resumed: str | None = None

    def key(self) -> bytes:
        """Return the record's key."""
        return progress_key(self.epoch, self.lane)

    def encode(self) -> bytes:
        """Return the record's value, a JSON object."""
        return orjson.dumps(
            {
                "version": 1,
                "outbox_uuid": self.outbox_uuid,
                "cluster_id": self.cluster_id,
                "epoch": self.epoch,
                "lane": self.lane,
                "seq": self.seq,
                "after": [self.after.batch_id, self.after.session_key],
                "cursor": [self.cursor.batch_id, self.cursor.session_key],
                "commit_id": self.commit_id,
                "sessions": self.sessions,
                "events": self.events,
                "parked": self.parked,
                "total": [self.total.sessions, self.total.events, self.total.parked],
                "resumed": self.resumed,
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> "Progress":
        """Read a record's value. Raises ValueError if it is not a progress record of a version that this code knows."""
        try:
            fields = parsed(value)
            if fields["version"] != 1:
                shown = repr(fields["version"])[:20]
                raise ValueError(f"progress record of version {shown}, this version knows 1")
            return cls(
                outbox_uuid=UUID(fields["outbox_uuid"]),
                cluster_id=text(fields["cluster_id"]),
                epoch=number(fields["epoch"]),
                lane=number(fields["lane"]),
                seq=number(fields["seq"]),
                after=cursor(fields["after"]),
                cursor=cursor(fields["cursor"]),
                commit_id=None if fields["commit_id"] is None else UUID(fields["commit_id"]),
                sessions=number(fields["sessions"]),
                events=number(fields["events"]),
                # Records written before these fields were added do not have them.
                parked=number(fields.get("parked", 0)),
                total=_totals(fields.get("total", [0, 0, 0])),
                resumed=None if fields.get("resumed") is None else text(fields["resumed"]),
            )
        except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"not a progress record, of {len(value)} bytes") from error


def parsed(value: bytes) -> dict[str, Any]:
    """Return a record's JSON. Raises orjson.JSONDecodeError, TypeError for a large one: parsed, lists take 34 times their size."""
    if len(value) > _MOST_BYTES:
        raise TypeError
    fields: dict[str, Any] = orjson.loads(value)
    return fields


def number(value: Any) -> int:
    """Return `value` if it is an integer that Postgres can store, too. Otherwise raises TypeError."""
    if type(value) is not int or abs(value) > _MAX_NUMBER:
        raise TypeError
    return value


def text(value: Any) -> str:
    """Return `value` if it is a text that Postgres can store, too, and not too long. Otherwise raises TypeError."""
    if not isinstance(value, str) or "\0" in value or len(value) > _MAX_CHARS:
        raise TypeError
    return value


def cursor(value: Any) -> Cursor:
    """Return a cursor from its two parts. Raises TypeError."""
    if not isinstance(value, list) or len(value) != 2:
        raise TypeError
    batch_id, session_key = value
    return Cursor(number(batch_id), None if session_key is None else text(session_key))


def _totals(value: Any) -> Totals:
    if not isinstance(value, list) or len(value) != 3:
        raise TypeError
    return Totals(*map(number, value))


def progress_key(epoch: int, lane: int) -> bytes:
    """Return the key of a lane's progress records. It contains the epoch, because a partition outlives a change of the lane count."""
    return b"%d/%d" % (epoch, lane)


def lane_of_key(key: bytes | None) -> tuple[int, int] | None:
    """Return (epoch, lane) of a progress record's key; None if `key` is not one."""
    found = _KEY.fullmatch(key or b"")
    return None if found is None else (int(found[1]), int(found[2]))
