"""The assembler: (open sessions, new records) -> (closed sessions, dead letters, open sessions). A pure function of one partition's log.

1. Take out the clock records, and read the others as columns (`records`); malformed ones are dead letters already.
2. Sort the events by (key, offset), cut each key's events into segments at the starts (if any event opens a session, after the ends), and
   join them with the open sessions (`groups`).
3. Select every key that may have an anomaly, whole columns at a time (`anomalies`).
4. Each segment of any other key is a session, closed or open. `event_rules` judges the selected keys event by event.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.formats.writer import NO_SCHEMAS, Schemas
from spark_job.sessions.anomalies import Anomalies, find_anomalies
from spark_job.sessions.clock import NEVER
from spark_job.sessions.event_rules import EventJudge, NewEvents, OpenSession
from spark_job.sessions.events import Events
from spark_job.sessions.groups import Groups
from spark_job.sessions.parsing.clock_records import without_clock_records
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.partition_limits import within_limits
from spark_job.sessions.result import AssembledSessions, ClosedSession, DeadLetter
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.chunks import EventChunk, Sums, ranges
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import OpenState

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def assemble(
    state: OpenState, new: pa.Table, settings: AssemblySettings, schemas: Schemas = NO_SCHEMAS
) -> AssembledSessions:
    """Assemble a partition's new records with the sessions that were open before. Does not change its arguments.

    `new`, in offset order: offset int64, ts int64 (ms), value binary or null; key, type, event_id and schema_id binary or null if they do
    not come from the value; by_broker int8 (optional without clock records); clock binary or null if the settings have clock records. Its
    offsets lie above those of earlier calls. `schemas`: those of all ids in `new`, for formats with schemas.

    Raises DamagedStateError if `state` is not what an earlier call returned, InputSchemaError if `new` is not as described.
    """
    return within_limits(partial(_assemble, settings=settings, schemas=schemas), state, new, settings)


def _assemble(
    state: OpenState, new: pa.Table, settings: AssemblySettings, schemas: Schemas
) -> AssembledSessions:
    if settings.rules_version >= 2 and state.last is None:
        state = state.from_first_rules()
    new, clock_records = without_clock_records(new, settings)
    records = read_records(new, settings, schemas)
    groups = Groups(records, state, settings, clock_records)
    anomalies = find_anomalies(groups, settings)
    odd = _Odd(groups, settings, anomalies)
    segments = groups.segments
    plain = ~anomalies.groups[segments.group]
    closing = np.flatnonzero(plain & segments.ends)
    closed = _closed(groups, closing, settings) + odd.judge.closed
    counts = odd.judge.counts
    counts.events = len(new)
    counts.sessions = len(closed)
    counts.malformed = len(records.letters)
    return AssembledSessions(
        sorted(closed, key=lambda session: session.closing_offset),
        sorted(records.letters + odd.judge.letters, key=_letter_order),
        _still_open(
            groups, state, np.flatnonzero(plain & ~segments.ends), segments.continues[closing], odd, settings
        ).with_last(groups.last),
        counts,
    )


def _letter_order(letter: DeadLetter) -> tuple[int, int, str]:
    return letter.closing_offset, letter.first_offset, letter.reason


def _closed(groups: Groups, which: Int, settings: AssemblySettings) -> list[ClosedSession]:
    """Return segments of clean keys as sessions. A new session is a range of the new events; an older session's events are joined first."""
    segments = groups.segments
    is_new = segments.continues[which] < 0
    begun = which[is_new]
    low, high = segments.low[begun].tolist(), segments.high[begun].tolist()
    keys = groups.key_of(segments.group[begun]).to_pylist()
    closed = list(map(ClosedSession, keys, repeat(groups.events), low, high, repeat(settings.names)))
    older = which[~is_new]
    if len(older):
        older = older[np.argsort(segments.continues[older])]
        starts = groups.open.sessions.start[segments.continues[older]]
        whole = groups.open.events_of(starts, _chunk(groups, older, starts))
        keys = groups.key_of(segments.group[older]).to_pylist()
        first, part = whole.first.tolist(), groups.open.sessions.part[segments.continues[older]].tolist()
        of_all = (repeat(settings.names), repeat(None))
        closed += map(ClosedSession, keys, repeat(whole.events), first, first[1:], *of_all, part)
    return closed


def _chunk(groups: Groups, segments: Int, starts: Int) -> EventChunk:
    """Return the events of some segments. `starts`: the starts of their sessions, ascending."""
    low = groups.segments.low[segments]
    size = groups.segments.high[segments] - low
    events = groups.events.take(ranges(low, size))
    return EventChunk(starts, np.concatenate([[0], np.cumsum(size)]), events)


class _Odd:
    """Judges the selected keys event by event, and holds the sessions that are open afterwards."""

    def __init__(self, groups: Groups, settings: AssemblySettings, anomalies: Anomalies) -> None:
        sessions = groups.open.sessions
        odd = np.flatnonzero(anomalies.groups)
        silent = anomalies.silent
        self.places = np.concatenate([groups.session[odd], silent])
        """For each key, the place of the session that was open before; -1 if there was none."""
        known = np.sort(self.places[self.places >= 0])
        before = groups.open.events_of(sessions.start[known])
        size = groups.past[odd] - groups.first[odd]
        rows = ranges(groups.first[odd], size)
        self.n_before = len(before)
        self.judge = EventJudge(
            settings, Events.concat([before.events, groups.events.take(rows)]), groups.clock
        )
        keys: list[str] = groups.key_of(odd).to_pylist()
        keys += sessions.key.take(pa.array(silent)).to_pylist()
        new = _new_events(
            groups, odd, rows, len(silent), self.judge.events, self.n_before, anomalies.clock_matters
        )
        self.still_open: list[tuple[str, OpenSession]] = []
        for key, place, events in zip(keys, self.places.tolist(), new, strict=True):
            session = _restored(sessions, place, before, self.judge.events) if place >= 0 else None
            self.judge.counts.per_event += len(events.rows)
            session = self.judge.run(key, session, events)
            if session is not None:
                self.still_open.append((key, session))
        self.still_open.sort(key=lambda entry: entry[1].start)


def _new_events(
    groups: Groups, odd: Int, rows: Int, silent: int, events: Events, begin: int, clock_matters: bool
) -> Iterator[NewEvents]:
    """Yield the new events of each odd group as lists, with the clock's times around each event; then, `silent` times, no events.

    `rows`: the events of the groups. `events` has them, too, from its row `begin` on.
    """
    clock = groups.clock
    around = [(NEVER, 0, 0)] * len(rows)
    before = [(NEVER, 0, 0)] * (len(odd) + silent)
    if clock_matters:
        low, high = groups.until_next(rows)
        around = list(zip(clock.latest(low, high).tolist(), low.tolist(), high.tolist(), strict=True))
        until = np.concatenate([groups.place[groups.first[odd]], np.full(silent, len(clock))])
        latest = clock.latest(np.zeros(len(until), np.int64), until)
        before = list(zip(latest.tolist(), repeat(0), until.tolist(), strict=False))
    offset, ts, kind = (column[begin:].tolist() for column in (events.offset, events.ts, events.kind))
    ids = [None] * len(rows) if events.event_id is None else events.event_id.slice(begin).to_pylist()
    bounds = np.cumsum(
        np.concatenate([[0], groups.past[odd] - groups.first[odd], np.zeros(silent, np.int64)])
    )
    for first, (low_row, high_row) in zip(before, pairwise(bounds.tolist()), strict=True):
        mine = slice(low_row, high_row)
        yield NewEvents(
            list(range(begin + low_row, begin + high_row)),
            offset[mine],
            ts[mine],
            kind[mine],
            ids[mine],
            [first, *around[mine]],
        )


def _restored(sessions: OpenSessions, place: int, before: EventChunk, events: Events) -> OpenSession:
    """Return an open session from the table. `before` has its events; `events` begins with all events of `before`."""
    start = int(sessions.start[place])
    rows: list[int] = []
    if sessions.rows[place]:
        at = int(np.searchsorted(before.start, start))
        rows = list(range(int(before.first[at]), int(before.first[at + 1])))
    ids = [] if events.event_id is None or not rows else events.event_id[rows[0] : rows[-1] + 1].to_pylist()
    start_hash = sessions.start_hash[place].as_py()
    return OpenSession(
        start=start,
        last=int(sessions.last[place]),
        max_ts=int(sessions.max_ts[place]),
        rows=rows,
        n_bytes=int(sessions.n_bytes[place]),
        irregular=bool(sessions.irregular[place]),
        repeated=int(sessions.repeated[place]),
        part=int(sessions.part[place]),
        ids={event_id for event_id in ids if event_id is not None},
        start_hash=start_hash,
        start_id=sessions.start_id[place].as_py() if start_hash is not None else (ids[0] if ids else None),
    )


def _still_open(
    groups: Groups, state: OpenState, opening: Int, closing: Int, odd: _Odd, settings: AssemblySettings
) -> OpenState:
    """Return the sessions that stay open.

    `opening`: segments of clean keys without an end. `closing`: the open sessions that the segments with an end continue
    (`Segments.continues`).
    """
    segments, before = groups.segments, groups.open.sessions
    untouched = np.ones(len(before), bool)
    untouched[odd.places[odd.places >= 0]] = False
    untouched[closing[closing >= 0]] = False
    going_on = segments.continues[opening]
    untouched[going_on[going_on >= 0]] = False
    if untouched.all() and not len(opening) and not odd.still_open:
        return state

    starts = groups.events.offset[segments.low[opening]]
    starts[going_on >= 0] = before.start[going_on[going_on >= 0]]
    by_start = np.argsort(starts)
    opening, going_on, starts = opening[by_start], going_on[by_start], starts[by_start]
    plain = _chunk(groups, opening, starts)
    strange = _new_of(odd)
    entries = OpenSessions.by_start(
        [
            _plain_sessions(groups, before, opening, going_on, plain, any_opens=not settings.start),
            _odd_sessions(before, odd, strange),
        ]
    )
    ended = np.setdiff1d(before.start[~untouched], entries.start, assume_unique=True)
    return state.changed(ended, entries, _merged(plain, strange))


def _plain_sessions(
    groups: Groups, before: OpenSessions, opening: Int, going_on: Int, new: EventChunk, *, any_opens: bool
) -> OpenSessions:
    """Return the table's entries for open segments of clean keys, in the order of `new`, which has their events."""
    count = len(opening)
    old = going_on >= 0
    low = groups.segments.low[opening]
    past = groups.segments.high[opening]
    entry = _Table(before, np.where(old, going_on, -1))
    max_ts = np.maximum.reduceat(new.events.ts, new.first[:-1]) if count else new.start
    sums = new.sums(entry.sums)
    n_bytes = np.add.reduceat(new.events.sizes(), new.first[:-1]) if count else new.start
    last = groups.events.offset[past - 1] if count else new.start
    return OpenSessions(
        start=new.start,
        last=last,
        max_ts=np.maximum(max_ts, entry.max_ts),
        rows=entry.rows + (past - low),
        n_bytes=entry.n_bytes + n_bytes,
        irregular=np.zeros(count, bool),
        repeated=last if any_opens else entry.repeated,
        part=entry.part,
        checksum=sums.checksum,
        payload_crc=sums.payload_crc,
        id_crc=sums.id_crc,
        key=groups.key_of(groups.segments.group[opening]),
        start_hash=pa.nulls(count, pa.large_binary()),
        start_id=pa.nulls(count, pa.large_binary()),
    )


class _Table:
    """The table's columns for some sessions. A session that was not in the table (place -1) gets the values of one without events."""

    def __init__(self, sessions: OpenSessions, places: Int) -> None:
        def column(values: npt.NDArray[Any], absent: int) -> npt.NDArray[Any]:
            out = np.full(len(places), absent, values.dtype)
            out[places >= 0] = values[places[places >= 0]]
            return out

        self.rows = column(sessions.rows, 0)
        self.n_bytes = column(sessions.n_bytes, 0)
        self.max_ts = column(sessions.max_ts, NEVER)
        self.repeated = column(sessions.repeated, -1)
        self.part = column(sessions.part, 1)
        self.sums = Sums(*(column(values, 0) for values in Sums.of(sessions)))


def _new_of(odd: _Odd) -> EventChunk:
    """Return the new events of the sessions that the rules left open."""
    rows = [[row for row in session.rows if row >= odd.n_before] for _, session in odd.still_open]
    with_new = [
        (session.start, mine) for (_, session), mine in zip(odd.still_open, rows, strict=True) if mine
    ]
    if not with_new:
        return EventChunk.empty()
    first = np.cumsum([0, *(len(mine) for _, mine in with_new)])
    taken = odd.judge.events.take(np.concatenate([np.array(mine, np.int64) for _, mine in with_new]))
    return EventChunk(np.array([start for start, _ in with_new], np.int64), first, taken)


def _odd_sessions(before: OpenSessions, odd: _Odd, new: EventChunk) -> OpenSessions:
    """Return the table's entries for the sessions that the rules left open. `new`: their new events."""
    opened = [session for _, session in odd.still_open]
    start = np.array([session.start for session in opened], np.int64)
    rows = np.array([len(session.rows) for session in opened], np.int64)
    places = np.searchsorted(before.start, start)
    known = np.array(
        [at < len(before) and before.start[at] == each for at, each in zip(places, start, strict=True)], bool
    )
    sums = Sums(*(np.array(column) for column in _Table(before, np.where(known, places, -1)).sums))
    has_new = np.isin(start, new.start)
    for column, grown in zip(sums, new.sums(Sums(*(column[has_new] for column in sums))), strict=True):
        column[has_new] = grown
        column[rows == 0] = 0
    return OpenSessions(
        start=start,
        last=np.array([session.last for session in opened], np.int64),
        max_ts=np.array([session.max_ts for session in opened], np.int64),
        rows=rows,
        n_bytes=np.array([session.n_bytes for session in opened], np.int64),
        irregular=np.array([session.irregular or session.is_tombstone for session in opened], bool),
        repeated=np.array([session.repeated for session in opened], np.int64),
        part=np.array([session.part for session in opened], np.int64),
        checksum=sums.checksum,
        payload_crc=sums.payload_crc,
        id_crc=sums.id_crc,
        key=pa.array([key for key, _ in odd.still_open], pa.large_string()),
        start_hash=pa.array([session.start_hash for session in opened], pa.large_binary()),
        start_id=pa.array(
            [session.start_id if session.is_tombstone else None for session in opened], pa.large_binary()
        ),
    )


def _merged(one: EventChunk, other: EventChunk) -> EventChunk:
    """Return two chunks of different sessions as one."""
    if not len(one) or not len(other):
        return one if len(one) else other
    size = np.concatenate([np.diff(one.first), np.diff(other.first)])
    start = np.concatenate([one.start, other.start])
    order = np.argsort(start)
    begin = np.concatenate([one.first[:-1], other.first[:-1] + len(one)])
    events = Events.concat([one.events, other.events]).take(ranges(begin[order], size[order]))
    return EventChunk(start[order], np.concatenate([[0], np.cumsum(size[order])]), events)
