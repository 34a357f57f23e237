"""The form of a replay's progress record. Kafka commits the record together with the replay's events, so that no retry sends a row twice
(delivery.py). Pure.
"""

import binascii
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from contract.cursor import Cursor
from contract.progress import NO_TOTALS, Totals, cursor, number, parsed, text

PARTITIONS = 16
"""The number of partitions of the replays' progress topic. An open transaction hides later records only from replays of its partition."""
# Above this number of topics, they are packed: a record with some ten thousand would be larger than a topic accepts by default.
_LEGIBLE_TOPICS = 1_000
_MOST_TOPICS_BYTES = 4 << 20
"""Of unpacked JSON, some 60,000 topics. JSON of many tiny values takes 34 times as much memory."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay after its transaction number `seq`. `rows`, `events` and `skipped` count from its beginning.

    `cursor`: all rows up to it were sent or left out. `commit_id`: of the cursor's batch. `topics`: the ids of the topics written so far.
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

    @property
    def total(self) -> Totals:
        """Zero, because replays have separate counters."""
        return NO_TOTALS

    @property
    def resumed(self) -> str | None:
        """None, because no command moves a replay."""
        return None

    def encode(self) -> bytes:
        """Return the record's value, a JSON object. In version 2 the topics are packed."""
        packed = len(self.topics) > _LEGIBLE_TOPICS
        return orjson.dumps(
            {
                "version": 2 if packed else 1,
                "outbox_uuid": self.outbox_uuid,
                "cluster_id": self.cluster_id,
                "replay_uuid": self.replay_uuid,
                "seq": self.seq,
                "cursor": [self.cursor.batch_id, self.cursor.session_key],
                "commit_id": self.commit_id,
                "rows": self.rows,
                "events": self.events,
                "skipped": self.skipped,
                "topics": _packed(self.topics) if packed else self.topics,
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> "ReplayProgress":
        """Parse a record's value. Raises ValueError if it is not a progress record that this code knows."""
        try:
            fields = parsed(value)
            if fields["version"] not in (1, 2):
                shown = repr(fields["version"])[:20]
                raise ValueError(f"progress record of version {shown}, this publisher knows 1 and 2")
            topics = fields["topics"] if fields["version"] == 1 else _unpacked(fields["topics"])
            return cls(
                outbox_uuid=UUID(fields["outbox_uuid"]),
                cluster_id=text(fields["cluster_id"]),
                replay_uuid=UUID(fields["replay_uuid"]),
                seq=number(fields["seq"]),
                cursor=cursor(fields["cursor"]),
                commit_id=UUID(fields["commit_id"]),
                rows=number(fields["rows"]),
                events=number(fields["events"]),
                skipped=number(fields["skipped"]),
                topics={topic: text(topic_id) for topic, topic_id in topics.items()},
            )
        except (
            KeyError,
            TypeError,
            AttributeError,
            orjson.JSONDecodeError,
            binascii.Error,
            zlib.error,
        ) as error:
            raise ValueError(f"not a replay's progress record, of {len(value)} bytes") from error


def progress_key(replay_uuid: UUID) -> bytes:
    """Return the key of a replay's records. It is the uuid, because a restored database may use the replay's number again."""
    return str(replay_uuid).encode()


def progress_partition(replay_id: int) -> int:
    """Return the partition of a replay's records."""
    return replay_id % PARTITIONS


def _packed(topics: dict[str, str]) -> str:
    return b64encode(zlib.compress(orjson.dumps(topics, option=orjson.OPT_SORT_KEYS), level=1)).decode()


def _unpacked(text: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(
        zlib.decompressobj().decompress(b64decode(text, validate=True), _MOST_TOPICS_BYTES)
    )
    return found
