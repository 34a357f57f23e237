"""Positions in the input: an offset for each (topic id, partition).

They stay valid across restarts, unlike Spark's batch numbers. In Postgres: JSON `{topic id: {partition: offset}}`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Self


class TopicPartition(NamedTuple):
    """A partition of a topic *id*: if a topic is deleted and created again, its partitions are different ones."""

    topic_id: str
    partition: int


class Offsets(Mapping[TopicPartition, int]):
    """An immutable map. `at`, `max` and `differences` take a partition that it does not name as 0."""

    __slots__ = ("_map",)

    def __init__(
        self, items: Mapping[TopicPartition, int] | Iterable[tuple[TopicPartition, int]] = ()
    ) -> None:
        self._map: dict[TopicPartition, int] = dict(sorted(dict[TopicPartition, int](items).items()))

    @classmethod
    def from_json(cls, value: Mapping[str, Mapping[str, int]]) -> Self:
        """Read `{topic id: {partition: offset}}`."""
        return cls(
            {TopicPartition(t, int(p)): o for t, partitions in value.items() for p, o in partitions.items()}
        )

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return `{topic id: {partition: offset}}`."""
        result: dict[str, dict[str, int]] = {}
        for where, offset in self._map.items():
            result.setdefault(where.topic_id, {})[str(where.partition)] = offset
        return result

    def at(self, where: TopicPartition) -> int:
        """Return the offset there; 0 if the map does not name the partition."""
        return self._map.get(where, 0)

    def max(self, other: "Offsets") -> "Offsets":
        """Return the greater of both offsets for each partition that either map names."""
        return Offsets({where: max(self.at(where), other.at(where)) for where in {*self, *other}})

    def lowered(self, to: "Offsets") -> "Offsets":
        """Return these offsets, none above the offset that `to` has for the same partition."""
        return Offsets({where: min(offset, to.get(where, offset)) for where, offset in self._map.items()})

    def named(self, topics: Mapping[str, str]) -> list[str]:
        """Return `topic/partition: offset` of each partition, for people. `topics`: {topic id: topic}; an unknown id stands for itself."""
        return [f"{topics.get(w.topic_id, w.topic_id)}/{w.partition}: {o}" for w, o in self._map.items()]

    def differences(self, other: "Offsets") -> str:
        """Return the partitions in which the maps differ, `topic-id/partition: this != other`, for messages."""
        return ", ".join(
            f"{where.topic_id}/{where.partition}: {self.at(where)} != {other.at(where)}"
            for where in sorted({*self, *other})
            if self.at(where) != other.at(where)
        )

    def __getitem__(self, where: TopicPartition) -> int:
        return self._map[where]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()})"
