"""Group the new events by key, and cut each group into segments, whole columns at a time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_job.sessions.clock import NEVER, Clock, Ticks, clock_record_key
from spark_job.sessions.events import END, START
from spark_job.sessions.parsing.column_bytes import hidden
from spark_job.sessions.parsing.records import Records
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Segments:
    """Runs of a group's events. Each reaches up to the next start or, if any event opens a session, to the next end."""

    low: Int
    high: Int
    group: Int
    """Index of the group."""
    ends: Bool
    """Whether the last event is an end."""
    continues: Int
    """The place in `Groups.open` of the open session that the segment continues; -1 if it begins a session."""


class Groups:
    """The well-formed new events by (key, offset). A group is one key; group i has the events [first[i], past[i])."""

    def __init__(
        self,
        records: Records,
        state: OpenState,
        settings: AssemblySettings,
        clock_records: Ticks | None = None,
    ) -> None:
        """`clock_records`: the clock records, which are not in `records`, with codes from 0 on."""
        alone = settings.rules_version < 2
        before = state.last
        self._any_opens = not settings.start
        rows = np.flatnonzero(records.well_formed)
        offset = records.events.offset[rows]
        codes = int64(pc.fill_null(records.key.indices, 0))[rows]
        self.keys: pa.LargeStringArray = records.key.dictionary
        """By code."""
        by_broker = None if records.by_broker is None else records.by_broker[rows]
        ticks, places = Ticks(offset, records.clock_ts[rows], codes, by_broker), None
        if clock_records is not None:
            ticks, places = ticks.among(clock_records._replace(code=len(self.keys) + clock_records.code))
        self.clock = Clock(
            ticks.offset,
            ticks.ts,
            ticks.code,
            by_broker=ticks.by_broker,
            before=(-1, NEVER)
            if before is None or not len(ticks.code)
            else before.other_than(self._key_at(ticks, 0)),
            alone=alone,
        )
        self.last = before
        """What the next batch's clock needs."""
        if not alone and len(ticks.code):
            self.last = self.clock.last_records(self._key_at(ticks, -1))
        order = _order(codes, offset)
        codes = codes[order]
        self.place = order if places is None else places[order]
        """Each event's place on the clock."""
        self.events = records.events.ordered(rows[order])
        times = [self.events.ts] if clock_records is None else [self.events.ts, clock_records.ts]
        self.latest = max((int(ts.max()) for ts in times if len(ts)), default=None)
        """The latest time of the events and clock records; None if there are none."""
        self.first = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: len(codes)])
        self.past = np.append(self.first[1:], len(codes))[: len(self.first)]
        self.code = codes[self.first]
        keys = self.keys.take(pa.array(self.code))
        self.open = state.touched(keys, self._quieter_than(state, settings.silence_ms))
        """The sessions that were open before and that these records may change."""
        self.session = np.full(len(self.code), -1)
        """For each group, the place of its key's open session in that table; -1 if none is open."""
        # `value_set` must be the new keys: Arrow hashes all of it and keeps the hashes, and the open keys may be many.
        has_new = pc.index_in(hidden(self.open.sessions.key), value_set=hidden(keys))
        open_already = np.flatnonzero(has_new.is_valid())
        self.session[int64(has_new.drop_null())] = open_already

    def _quieter_than(self, state: OpenState, limit_ms: int) -> int | None:
        """Return a time: only sessions whose greatest time is below it can have fallen silent. None: no session can."""
        quietest = state.live.quietest
        if self.latest is None or quietest is None or self.latest - limit_ms <= quietest:
            return None
        every = np.zeros(1, np.int64)
        return int(self.clock.latest_agreed(every, every + len(self.clock), every - 1)[0]) - limit_ms

    def _key_at(self, ticks: Ticks, place: int) -> str:
        code = ticks.code[place]
        return (
            self.keys[code].as_py() if code < len(self.keys) else clock_record_key(int(ticks.offset[place]))
        )

    def __len__(self) -> int:
        return len(self.first)

    def key_of(self, groups: Int) -> pa.LargeStringArray:
        """Return the keys of some groups."""
        return self.keys.take(pa.array(self.code[groups]))

    @cached_property
    def group(self) -> Int:
        """The index of each event's group."""
        return np.repeat(np.arange(len(self)), self.past - self.first)

    @cached_property
    def segments(self) -> Segments:
        """The candidates for sessions."""
        kind = self.events.kind
        begins = np.append(True, kind[:-1] == END)[: len(kind)] if self._any_opens else kind == START
        begins[self.first] = True
        low = np.flatnonzero(begins)
        high = np.append(low[1:], len(kind))[: len(low)]
        group = self.group[low]
        continues = np.where(low == self.first[group], self.session[group], -1)
        return Segments(low, high, group, kind[high - 1] == END, continues)

    def until_next(self, at: Int) -> tuple[Int, Int]:
        """Return, for each of some events, the places on the clock [low, high) after it, up to the next event of its group."""
        low = self.place[at] + 1
        follows = at + 1 < self.past[self.group[at]]
        high = np.full(len(at), len(self.clock))
        high[follows] = self.place[at[follows] + 1]
        return low, high


def int64(numbers: pa.Array) -> Int:
    """Return an Arrow array of integers without nulls as int64."""
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _order(code: Int, offset: Int) -> Int:
    """Return the order by (code, offset). The given offsets ascend."""
    if not len(code):
        return np.zeros(0, np.int64)
    low = int(offset[0])
    span = int(offset[-1]) - low + 1
    if (int(code.max()) + 1) * span < 2**63:
        # One sort of distinct numbers costs a third of a stable one.
        return np.argsort(code * span + (offset - low))
    return np.argsort(code, kind="stable")
