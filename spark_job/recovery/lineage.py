"""Which assembly description judges which offset. A changed assembly judges what comes after its start and nothing before.

A generation keeps the descriptions that judged what is open at its start, each with the offsets from which on it did. Its own description
is kept beside them, and judges from the generation's start on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from spark_job.input.offsets import Offsets, TopicPartition

_NEVER = 2**62


@dataclass(frozen=True)
class Former:
    """A description of before, and where it began to judge."""

    assembly: Mapping[str, Any]
    start: Offsets


@dataclass(frozen=True)
class Lineage:
    """The descriptions before a generation's own, in the order of their starts."""

    former: tuple[Former, ...] = ()

    def since(
        self, where: TopicPartition, safe: int, start: Offsets, assembly: Mapping[str, Any]
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """Return [(offset, description that judges from there on)] for a partition's events from `safe` on.

        `start` and `assembly`: the generation's own.

        A partition that a start does not name appeared later, and was judged from its beginning.
        """
        own = start.at(where)
        entries = [(each.start.at(where), each.assembly) for each in self.former]
        entries = sorted([entry for entry in entries if entry[0] <= own], key=lambda entry: entry[0])
        entries.append((own, assembly))
        first = max((at for at, (begin, _) in enumerate(entries) if begin <= safe), default=0)
        return entries[first:]

    def followed(self, assembly: Mapping[str, Any], start: Offsets, safe: Offsets) -> "Lineage":
        """Return the lineage of what follows a generation with this description and start. `safe`: what is needed of the past."""
        entries = [*self.former, Former(assembly, start)]
        while len(entries) > 1 and all(
            entries[1].start.at(where) <= offset for where, offset in safe.items()
        ):
            entries.pop(0)
        return Lineage(tuple(entries))

    def only_for(
        self, partitions: Collection[TopicPartition], known: Collection[TopicPartition]
    ) -> "Lineage":
        """Return the same for some of the known partitions: to the others it does not apply."""
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
