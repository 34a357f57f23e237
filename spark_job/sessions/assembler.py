"""The assembler: (open events, new events) -> (closed sessions, dead letters, open events, summary). A pure function.

1. Read the open state and the new records (`state`, `records`); malformed ones are dead letters already.
2. Sort the events by (key, source, offset): a group for each key and source, cut into segments at the starts (`grouping`).
3. Whole columns at a time, find every group that might need more than the plain grammar (`suspects`).
4. The other groups' segments are sessions, or stay open, as they are. The odd ones go event by event (`machine`).
"""

from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.decode import views
from spark_job.sessions.errors import BucketTooLarge
from spark_job.sessions.grouping import Grouping
from spark_job.sessions.machine import Machine, NewEvents, OpenSession
from spark_job.sessions.records import read_records
from spark_job.sessions.result import Assembled, ClosedSession, DeadLetter, Summary
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.silence import NEVER
from spark_job.sessions.state import OpenState
from spark_job.sessions.store import EventStore
from spark_job.sessions.suspects import odd_groups

Int = npt.NDArray[np.int64]

StillOpen = tuple[int, OpenSession]
"""A group's number and its open session."""


def assemble(open_state: bytes | None, new: pa.Table, settings: AssemblySettings) -> Assembled:
    """Assemble one bucket's new records with what was open before. Does not change its arguments.

    `new` in any order and chunking: source int32 (a number for a topic and partition), offset int64, ts int64 (ms),
    key string or null, value string (null where not UTF-8 or absent), raw binary (the bytes of a value that is not
    UTF-8), raw_key binary (likewise, optional); type and event_id string where they come from headers.
    All offsets of a source must lie above those of earlier calls.

    Raises BucketTooLarge, UnknownStateVersion and InputSchemaError.
    """
    state = OpenState.from_bytes(open_state)
    records = read_records(new, settings)
    store = EventStore(
        np.concatenate([state.offset, records.offset]),
        np.concatenate([state.ts, records.ts]),
        np.concatenate([state.kind, records.kind]),
        pa.concat_arrays([state.payload, records.payload]) if len(state.offset) else records.payload,
        None if records.event_id is None else pa.concat_arrays([state.event_id, records.event_id]),
        settings.names,
    )
    groups = Grouping(state, records, store, settings)
    odd = odd_groups(groups, state)
    machine = Machine(settings, store, lambda low, high, than: groups.clock.first_later(low, high, than))
    slow = _judge(machine, groups, state, np.flatnonzero(odd))

    plain = ~odd[groups.segments.group]
    closed = _closed(groups, np.flatnonzero(plain & groups.segments.ends)) + machine.closed
    opened = _opened(groups, np.flatnonzero(plain & ~groups.segments.ends), slow)
    blob = opened.to_bytes() if len(opened.source) else None
    if blob is not None and len(blob) > settings.max_bucket_bytes:
        raise BucketTooLarge(len(blob), settings.max_bucket_bytes, len(opened.source))

    counts = machine.counts
    counts.events = len(records.offset)
    counts.sessions = len(closed)
    counts.malformed = len(records.letters)
    return Assembled(
        sorted(closed, key=lambda session: (session.source, session.end_offset)),
        sorted(records.letters + machine.letters, key=_letter_order),
        blob,
        _summary(opened, blob),
        counts,
    )


def _letter_order(letter: DeadLetter) -> tuple[int, int, int, str]:
    return letter.source, letter.closing_offset, letter.first_offset, letter.reason


def _closed(groups: Grouping, which: Int) -> list[ClosedSession]:
    """Segments of clean groups as sessions."""
    low, high = groups.segments.low[which], groups.segments.high[which]
    number = groups.number[groups.segments.group[which]]
    store, order = groups.store, groups.order
    first, last = order[low], order[high - 1]
    return list(
        map(
            ClosedSession,
            groups.key_of(number),
            groups.source_of(number).tolist(),
            store.offset[first].tolist(),
            store.offset[last].tolist(),
            store.ts[first].tolist(),
            store.ts[last].tolist(),
            repeat(store),
            [order[begin:end] for begin, end in zip(low.tolist(), high.tolist(), strict=True)],
        )
    )


def _judge(machine: Machine, groups: Grouping, state: OpenState, odd: Int) -> list[StillOpen]:
    """Run the odd groups, and the tombstones without new events, through the per-event path."""
    settings = groups.settings
    rowless = np.setdiff1d(groups.session_number, groups.number)
    numbers = np.concatenate([groups.number[odd], rowless])
    if not len(numbers):
        return []
    nothing = np.zeros(len(rowless), np.int64)
    first, past = np.concatenate([groups.first[odd], nothing]), np.concatenate([groups.past[odd], nothing])
    before = np.searchsorted(groups.session_number, numbers)
    row_of_session = np.cumsum(state.rows) - state.rows
    silent = groups.span_ms > settings.timeout_ms + settings.grace_ms

    still: list[StillOpen] = []
    keys, sources = groups.key_of(numbers), groups.source_of(numbers).tolist()
    for at, number in enumerate(numbers.tolist()):
        session = None
        begin, end = int(first[at]), int(past[at])
        index = int(before[at])
        if index < len(groups.session_number) and groups.session_number[index] == number:
            session = _restore(state, index, int(row_of_session[index]), groups.store)
            begin += int(state.rows[index])
        new = _new_events(groups, number, begin, end, silent)
        machine.counts.per_event += end - begin
        session = machine.run(keys[at], sources[at], session, new)
        if session is not None:
            still.append((number, session))
    return still


def _restore(state: OpenState, index: int, row: int, store: EventStore) -> OpenSession:
    """An open session out of the state, whose events are the store's first rows."""
    rows = list(range(row, row + int(state.rows[index])))
    ids = state.event_id[row : row + len(rows)].to_pylist()
    start_hash = state.start_hash[index].as_py()
    return OpenSession(
        start=int(state.start[index]),
        last=int(state.last[index]),
        max_ts=int(state.max_ts[index]),
        rows=rows,
        n_bytes=int(store.bounds[row + len(rows)] - store.bounds[row]),
        irregular=bool(state.irregular[index]),
        ids={event_id for event_id in ids if event_id is not None},
        start_hash=start_hash,
        start_id=state.start_id[index].as_py() if start_hash is not None else ids[0],
    )


def _new_events(groups: Grouping, number: int, begin: int, end: int, silent: bool) -> NewEvents:
    """A group's new events as lists, with what the clock says around each; `silent`: whether it can say anything."""
    rows = groups.order[begin:end]
    store = groups.store
    around = [(NEVER, 0, 0)] * (len(rows) + 1)
    if silent:
        after = groups.silence_after(np.arange(begin, end))
        around = [groups.silence_before(number, begin if begin < end else None)]
        around += zip(after.latest.tolist(), after.low.tolist(), after.high.tolist(), strict=True)
    return NewEvents(
        rows.tolist(),
        store.offset[rows].tolist(),
        store.ts[rows].tolist(),
        store.kind[rows].tolist(),
        [None] * len(rows) if store.event_id is None else store.event_id.take(pa.array(rows)).to_pylist(),
        around,
    )


def _opened(groups: Grouping, which: Int, slow: list[StillOpen]) -> OpenState:
    """What stays open: segments of clean groups, and what the per-event path left open."""
    store, segments = groups.store, groups.segments
    low, high = segments.low[which], segments.high[which]
    clean = groups.order
    rows = [clean[begin:end] for begin, end in zip(low.tolist(), high.tolist(), strict=True)]
    latest = [int(groups.ts[begin:end].max()) for begin, end in zip(low.tolist(), high.tolist(), strict=True)]
    sessions = [
        (number, OpenSession(int(store.offset[mine[0]]), int(store.offset[mine[-1]]), max_ts, [], 0), mine)
        for number, mine, max_ts in zip(
            groups.number[segments.group[which]].tolist(), rows, latest, strict=True
        )
    ]
    sessions += [(number, session, np.array(session.rows, np.int64)) for number, session in slow]
    sessions.sort(key=lambda entry: entry[0])
    numbers = np.array([number for number, _, _ in sessions], np.int64)
    opened = [session for _, session, _ in sessions]
    kept = np.concatenate([np.zeros(0, np.int64), *(mine for _, _, mine in sessions)])
    return OpenState(
        key=pa.array(groups.key_of(numbers), pa.large_string()),
        source=groups.source_of(numbers) if len(numbers) else numbers,
        start=np.array([session.start for session in opened], np.int64),
        last=np.array([session.last for session in opened], np.int64),
        max_ts=np.array([session.max_ts for session in opened], np.int64),
        rows=np.array([len(mine) for _, _, mine in sessions], np.int64),
        irregular=np.array([session.irregular or session.tombstone for session in opened], bool),
        start_hash=pa.array([session.start_hash for session in opened], pa.binary()),
        start_id=pa.array(
            [session.start_id if session.tombstone else None for session in opened], pa.large_string()
        ),
        offset=store.offset[kept],
        ts=store.ts[kept],
        kind=store.kind[kept],
        payload=store.payload.take(pa.array(kept)),
        event_id=(
            pa.nulls(len(kept), pa.large_string())
            if store.event_id is None
            else store.event_id.take(pa.array(kept))
        ),
    )


def _summary(opened: OpenState, blob: bytes | None) -> Summary:
    oldest: dict[int, int] = {}
    for source, start in zip(opened.source.tolist(), opened.start.tolist(), strict=True):
        oldest[source] = min(start, oldest.get(source, start))
    return Summary(
        len(opened.source),
        len(opened.offset),
        int(np.diff(views(opened.payload)[0]).sum()),
        0 if blob is None else len(blob),
        oldest,
    )
