"""Events in (key, source, offset) order, cut into groups and segments; whole columns at a time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_job.sessions.records import Records
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.silence import NEVER, Clock
from spark_job.sessions.state import OpenState
from spark_job.sessions.store import END, START, EventStore

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Segments:
    """Runs of sorted events of one group, each from a start (or from a group's begin) up to the next start."""

    low: Int
    high: Int
    group: Int
    """Index of the group."""
    ends: Bool
    """The last event is an end."""


@dataclass(frozen=True, slots=True)
class Silence:
    """For some events: what other keys' new records tell between each and the next event of its group."""

    latest: Int
    """Their greatest time; NEVER without records."""
    low: Int
    high: Int
    """Their places on the clock, [low, high)."""


class Grouping:
    """A group is one key in one source. Its number orders groups by (key's bytes, source).

    `order` holds the rows of the well-formed events by (group, offset); `kind` and `ts` follow it.
    Group i has the number `number[i]` and the sorted events [first[i], past[i]).
    """

    def __init__(
        self, state: OpenState, records: Records, store: EventStore, settings: AssemblySettings
    ) -> None:
        self.store, self.settings = store, settings
        self.n_state = len(state.offset)
        self._records = records

        texts = records.key.dictionary
        keys = pc.unique(pa.concat_arrays([texts, state.key]))
        self.keys = keys.take(pc.sort_indices(keys.cast(pa.large_binary())))
        self.sources = np.unique(np.concatenate([records.source, state.source]))
        ranks = np.append(int64(pc.index_in(texts, value_set=self.keys)), 0)
        codes = int64(pc.fill_null(records.key.indices, len(texts)))
        new = self._number(ranks[codes], records.source)
        self.session_number = self._number(int64(pc.index_in(state.key, value_set=self.keys)), state.source)
        """Of each open session in the state, its group's number; ascending."""

        rows = np.arange(len(store.offset))
        if not records.well_formed.all():
            rows = np.concatenate([rows[: self.n_state], self.n_state + np.flatnonzero(records.well_formed)])
        numbers = np.concatenate([np.repeat(self.session_number, state.rows), new])[rows]
        sorting = _sorted(numbers, store.offset[rows])
        numbers = numbers[sorting]
        self.order = rows[sorting]
        self.kind = store.kind[self.order]
        self.ts = store.ts[self.order]
        self.first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
        self.past = np.append(self.first[1:], len(numbers))[: len(self.first)]
        self.number = numbers[self.first]

        latest = self.ts.max(initial=NEVER)
        # Python integers: the difference of the sentinels would overflow.
        self.span_ms = int(latest) - min(
            int(self.ts.min(initial=latest)), int(state.max_ts.min(initial=latest))
        )
        """Between the earliest and the latest event: up to this nothing can time out or fall silent."""

    def key_of(self, number: Int) -> list[str]:
        """The keys of groups, by number."""
        return self.keys.take(pa.array(number // len(self.sources))).to_pylist()  # type: ignore[no-any-return]

    def source_of(self, number: Int) -> Int:
        """The sources of groups, by number."""
        return self.sources[number % len(self.sources)]

    @cached_property
    def group(self) -> Int:
        """Of each sorted event, the index of its group."""
        return np.repeat(np.arange(len(self.first)), self.past - self.first)

    @cached_property
    def segments(self) -> Segments:
        """The candidates for sessions."""
        begins = self.kind == START
        begins[self.first] = True
        low = np.flatnonzero(begins)
        high = np.append(low[1:], len(self.order))[: len(low)]
        return Segments(low, high, self.group[low], self.kind[high - 1] == END)

    @cached_property
    def clock(self) -> Clock:
        """Built when first needed: most batches span less than a timeout."""
        rows = np.flatnonzero(self._records.well_formed)
        return Clock(self._records.source[rows], self._records.offset[rows], self._records.ts[rows])

    @cached_property
    def _place(self) -> Int:
        """Of each row, its place on the clock; -1 for events of earlier calls."""
        place = np.full(len(self.store.offset), -1, np.int64)
        place[self.n_state + np.flatnonzero(self._records.well_formed)] = self.clock.position
        return place

    def silence_after(self, at: Int) -> Silence:
        """After each of some sorted events. What came before this call was judged by the earlier ones."""
        source = self.source_of(self.number[self.group[at]])
        place = self._place[self.order[at]]
        low = np.where(place >= 0, place + 1, self.clock.begin(source))
        high = self.clock.end(source)
        follows = at + 1 < self.past[self.group[at]]
        place = self._place[self.order[at[follows] + 1]]
        high[follows] = np.where(place >= 0, place, low[follows])
        return Silence(self.clock.latest(low, high), low, high)

    def silence_before(self, number: int, at: int | None) -> tuple[int, int, int]:
        """Before a group's first new event, given as a sorted event, or up to now without one: latest, low, high."""
        source = self.source_of(np.array([number]))
        low = self.clock.begin(source)
        high = self.clock.end(source) if at is None else self._place[self.order[at : at + 1]]
        return int(self.clock.latest(low, high)[0]), int(low[0]), int(high[0])

    def _number(self, rank: Int, source: Int) -> Int:
        return rank * max(len(self.sources), 1) + np.searchsorted(self.sources, source)


def int64(numbers: pa.Array) -> Int:
    """An Arrow array of integers without nulls as int64."""
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _sorted(number: Int, offset: Int) -> Int:
    """The order by (number, offset)."""
    if not len(number):
        return np.zeros(0, np.int64)
    low = int(offset.min())
    span = int(offset.max()) - low + 1
    if (int(number.max()) + 1) * span < 2**63:
        # One sort of distinct numbers costs a third of a sort by two columns.
        return np.argsort(number * span + (offset - low))
    return np.lexsort((offset, number))
