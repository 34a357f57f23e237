"""Which records were refused for their schema's id: `schemas.py` decides; the position stores the verdicts in this form.

A registry may have tomorrow what it does not have today, and another version of the code may read what this one cannot. So the
sessions open at an offset depend on the input and on these verdicts. Each verdict is a range of offsets in which the records that name an
id are `malformed`. A rebuild applies the verdicts of its position, and asks the registry about all other records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

from service.formats.writer import UnusableSchema

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int = npt.NDArray[np.int64]
    Bool = npt.NDArray[np.bool_]

MOST_RANGES = 10_000
"""Greatest number of ranges of a partition in the ledger. The lowest ids are kept: registries count upwards, and so assign these first.
If a rebuild needed a range that was not kept, its digest would differ."""


class RefusedRange(NamedTuple):
    """The records from `first` to `last` that name the id. `is_over`: a later record with the id was not refused."""

    schema_id: int
    first: int
    last: int
    is_over: bool


@dataclass(frozen=True)
class RefusedIds:
    """The refused ids of one partition."""

    ranges: tuple[RefusedRange, ...] = ()

    @classmethod
    def from_json(cls, value: Iterable[Iterable[int]]) -> Self:
        """Read what `to_json` gave."""
        return cls(
            tuple(RefusedRange(number, first, last, bool(is_over)) for number, first, last, is_over in value)
        )

    def to_json(self) -> list[list[int]]:
        """Return it JSON-ready."""
        return [[*each[:3], int(each.is_over)] for each in self.ranges]

    def of(self, ids: "Int", offsets: "Int") -> "Bool":
        """Return whether each record was refused. `ids`: the id that each record names."""
        found = ids < 0
        for each in self.ranges:
            found |= (ids == each.schema_id) & (offsets >= each.first) & (offsets <= each.last)
        return found

    def judged(
        self, ids: "Int", offsets: "Int", verdicts: Mapping[int, UnusableSchema | None]
    ) -> "RefusedIds":
        """Return these verdicts and those on later records. `verdicts`: for each of `ids`, why it is refused; None: it is not."""
        unusable = {number for number, why in verdicts.items() if why is not None}
        if not unusable and not self.ranges:
            return self
        at_work = {each.schema_id: each for each in self.ranges if not each.is_over}
        done = [each for each in self.ranges if each.is_over]
        for number in verdicts.keys() - unusable:
            if number in at_work:
                done.append(at_work.pop(number)._replace(is_over=True))
        at_work |= _extended(at_work, ids, offsets, unusable)
        return RefusedIds(tuple(sorted([*done, *at_work.values()])[:MOST_RANGES]))

    def since(self, safe: int) -> "RefusedIds":
        """Return the ranges that are still needed if nothing below an offset is read again."""
        return replace(self, ranges=tuple(each for each in self.ranges if each.last >= safe))

    def below(self, end: int) -> "RefusedIds":
        """Return the ranges that remain if no record exists at or above an offset."""
        kept = (each._replace(last=min(each.last, end - 1)) for each in self.ranges if each.first < end)
        return replace(self, ranges=tuple(kept))


NOTHING_REFUSED = RefusedIds()


def _extended(
    at_work: Mapping[int, RefusedRange], ids: "Int", offsets: "Int", unusable: set[int]
) -> dict[int, RefusedRange]:
    """Return the ranges of the unusable ids among these records, each extended to the last record that names its id."""
    import numpy as np  # here: commands that only show a position start without it

    which = np.flatnonzero(np.isin(ids, np.fromiter(unusable, np.int64)))
    numbers, first = np.unique(ids[which], return_index=True)
    last = len(which) - 1 - np.unique(ids[which][::-1], return_index=True)[1]
    return {
        number: RefusedRange(number, at_work[number].first if number in at_work else begin, end, False)
        for number, begin, end in zip(
            numbers.tolist(), offsets[which[first]].tolist(), offsets[which[last]].tolist(), strict=True
        )
    }
