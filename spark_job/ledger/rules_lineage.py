"""Which assembly rules apply to which offset. Changed rules apply only to offsets from their start on.

A generation stores the rules that applied to the sessions open at its start, each with the offsets from which they applied. Its own rules
are stored beside them, and apply from the generation's start on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from spark_job.input.offsets import Offsets, TopicPartition

_NEVER = 2**62


@dataclass(frozen=True)
class Former:
    """Earlier rules, and the offsets from which they applied."""

    assembly: Mapping[str, Any]
    start: Offsets


@dataclass(frozen=True)
class Lineage:
    """The rules before a generation's own, in the order of their starts."""

    former: tuple[Former, ...] = ()

    def since(
        self, where: TopicPartition, safe: int, start: Offsets, assembly: Mapping[str, Any]
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """Return [(offset, rules that apply from there on)] for a partition's events from `safe` on.

        `start` and `assembly`: the generation's own.

        A partition that a start does not name appeared later: the rules apply to it from its beginning.
        """
        entries = self._until(assembly, start)
        return [
            (entries[number].start.at(where), entries[number].assembly)
            for number in _needed(entries, where, safe)
        ]

    def followed(self, assembly: Mapping[str, Any], start: Offsets, safe: Offsets) -> "Lineage":
        """Return the lineage of the generation after one with these rules and start.

        `safe`: the offsets from which on earlier rules are needed.
        """
        entries = self._until(assembly, start)
        needed = {number for where, offset in safe.items() for number in _needed(entries, where, offset)}
        return Lineage(tuple(each for number, each in enumerate(entries) if number in needed))

    def _until(self, assembly: Mapping[str, Any], start: Offsets) -> list[Former]:
        """Return all rules, the generation's own last. Rules that began above its start applied only to what Kafka has lost since."""
        former = [
            Former(
                each.assembly, Offsets({w: o if o <= start.at(w) else _NEVER for w, o in each.start.items()})
            )
            for each in self.former
        ]
        return [*former, Former(assembly, start)]

    def only_for(
        self, partitions: Collection[TopicPartition], known: Collection[TopicPartition]
    ) -> "Lineage":
        """Return the lineage for some of the known partitions only."""
        return Lineage(
            tuple(
                Former(
                    each.assembly,
                    Offsets(
                        {where: each.start.at(where) if where in partitions else _NEVER for where in known}
                    ),
                )
                for each in self.former
            )
        )

    @classmethod
    def from_json(cls, value: Sequence[Mapping[str, Any]]) -> Self:
        """Read what `to_json` gave."""
        return cls(tuple(Former(entry["assembly"], Offsets.from_json(entry["start"])) for entry in value))

    def to_json(self) -> list[dict[str, Any]]:
        """Return it JSON-ready."""
        return [{"assembly": dict(each.assembly), "start": each.start.to_json()} for each in self.former]


def _needed(entries: Sequence[Former], where: TopicPartition, safe: int) -> list[int]:
    """Return the numbers of the entries that apply to a partition's events from `safe` on."""
    begins = sorted((each.start.at(where), number) for number, each in enumerate(entries))
    begins = [entry for entry in begins if entry[0] < _NEVER]
    first = max((at for at, (begin, _) in enumerate(begins) if begin <= safe), default=0)
    return [number for _, number in begins[first:]]
