"""What is open in each partition at a position: the part of a ledger row that recovery needs beside the offsets.

assembly/task.py (`_open`) takes the open sessions from the cache, or rebuilds them.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from spark_job.assembly.refused_ids import NOTHING_REFUSED, RefusedIds
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.sessions.state.digest_form import DIGEST_FORM


@dataclass(frozen=True)
class OpenPartition:
    """A partition with open sessions."""

    safe: int
    """Offset of the oldest event of an open session. Tombstones do not count; without such a session, the position's end."""
    sessions: int
    events: int
    n_bytes: int
    digest: str | None
    """Of the open sessions (sessions/state/open_state.py). None: unknown, or of another release: rebuilds are then not compared."""
    tombstones: bytes = b""
    """What no rebuild finds: tombstones and later parts, encoded (`OpenState.remembered`); empty if there are none."""
    upgraded: bool = False
    """From before schema 0005: letters of sessions closed by silence below the position may be missing."""
    refused: RefusedIds = NOTHING_REFUSED
    """Which records from `safe` on were refused for their schema's id: a rebuild does not ask the registry for them again."""

    def unproven(self, safe: int) -> Self:
        """Return the partition without a digest: a rebuild from `safe` on decides what is open. Tombstones stay."""
        return replace(self, safe=safe, sessions=0, events=0, n_bytes=0, digest=None)

    def below(self, end: int) -> Self | None:
        """Return what remains if no record exists at or above `end`; None if nothing remains."""
        kept = b""
        if self.tombstones:
            # Imported here: commands that only show a position start without numpy and Arrow.
            from spark_job.sessions.state.open_sessions import begun_before

            kept = begun_before(self.tombstones, end)
        if self.safe >= end and not kept:
            return None
        return replace(self, tombstones=kept, refused=self.refused.below(end)).unproven(min(self.safe, end))

    def moved(self, end: int) -> Self:
        """Return what is open after a slice without records: the same sessions. If only tombstones remain, `safe` moves to the end."""
        return self if self.digest is None or self.events else replace(self, safe=end)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the ledger."""
        found: dict[str, Any] = {
            "safe": self.safe,
            "sessions": self.sessions,
            "events": self.events,
            "bytes": self.n_bytes,
        }
        found |= {} if self.digest is None else {"digest": self.digest}
        found |= {"upgraded": True} if self.upgraded else {}
        found |= {"refused": self.refused.to_json()} if self.refused.ranges else {}
        return found | ({"tombstones": base64.b64encode(self.tombstones).decode()} if self.tombstones else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""
        tombstones = base64.b64decode(value.get("tombstones", ""))
        digest = value.get("digest")
        return cls(
            value["safe"],
            value["sessions"],
            value["events"],
            value["bytes"],
            digest if digest is not None and digest.startswith(DIGEST_FORM) else None,
            tombstones,
            value.get("upgraded", False),
            RefusedIds.from_json(value.get("refused", ())),
        )


class OpenPartitions(Mapping[TopicPartition, OpenPartition]):
    """An immutable map of the partitions in which something is open. In Postgres: `{topic id: {partition: …}}`."""

    __slots__ = ("_map",)

    def __init__(
        self,
        items: Mapping[TopicPartition, OpenPartition] | Iterable[tuple[TopicPartition, OpenPartition]] = (),
    ) -> None:
        self._map = dict(sorted(dict[TopicPartition, OpenPartition](items).items()))

    @classmethod
    def from_json(cls, value: Mapping[str, Mapping[str, Any]]) -> Self:
        """Read `{topic id: {partition: …}}`."""
        return cls(
            {
                TopicPartition(topic_id, int(partition)): OpenPartition.from_json(found)
                for topic_id, partitions in value.items()
                for partition, found in partitions.items()
            }
        )

    def cut(self, end: Offsets, at: Offsets) -> Self:
        """Return what remains if Kafka has lost all records at or above `at`. `end`: of the position that this belongs to."""
        left: dict[TopicPartition, OpenPartition] = {}
        for where, found in self._map.items():
            if at.get(where, end.at(where)) >= end.at(where):
                left[where] = found
            elif (below := found.below(at[where])) is not None:
                left[where] = below
        return type(self)(left)

    def safe(self, end: Offsets) -> Offsets:
        """Return where the oldest open session of each partition begins; its end if none is open. `end`: of the same position."""
        return Offsets({where: self.safe_at(where, at) for where, at in end.items()})

    def safe_at(self, where: TopicPartition, end: int) -> int:
        """Return where the oldest open session of one partition begins; `end` if none is open."""
        return min(self._map[where].safe, end) if where in self._map else end

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return `{topic id: {partition: …}}`."""
        result: dict[str, dict[str, Any]] = {}
        for where, found in self._map.items():
            result.setdefault(where.topic_id, {})[str(where.partition)] = found.to_json()
        return result

    def __getitem__(self, where: TopicPartition) -> OpenPartition:
        return self._map[where]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)
