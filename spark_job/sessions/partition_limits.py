"""The limits of a partition: if its open sessions exceed `[session] max_open_bytes`, the oldest end as `too_large`.

The limits of a single session are in `event_rules`.

Sessions end in the order of their starts. So every session that is still open began after all ended ones, and after their repeated starts,
which a rebuild would take for starts of sessions. A rebuild begins at the oldest open session, and therefore needs neither these rules nor
any trace of the ended sessions (docs/decisions/0034).

If any event opens a session, a rebuild would take any event of an ended session for the first one of another session. Tombstones therefore
replace the ended sessions, and drop their later events. If there are too many tombstones, the oldest are dropped, and every session ends
that began before the last event of a dropped tombstone (docs/decisions/0042).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from contract.session_keys import MAX_KEY_BYTES
from spark_job.sessions.events import Events
from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.result import AssembledSessions, Counts, DeadLetter
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import OpenState

MAX_TOMBSTONES_BYTES = 8 << 20
"""Limit of a partition's tombstones and later parts of sessions: each row of the ledger contains them."""
_TOMBSTONE_BYTES = 160
"""The size of a tombstone without its key, a little rounded up."""
_HEAD_BYTES = 32
"""More than the schema's id that an event may have in front of its value."""
_ROOM = 64
"""Ending sessions frees 1/64 of a limit, because records are assembled one by one near it."""

Int = npt.NDArray[np.int64]
Assemble = Callable[[OpenState, pa.Table], AssembledSessions]


def within_limits(
    assemble: Assemble, state: OpenState, new: pa.Table, settings: AssemblySettings
) -> AssembledSessions:
    """Assemble new records, and end the oldest sessions over a limit. The result does not depend on where `new` was cut from the log."""
    most = settings.max_open_bytes
    if most is None:
        return assemble(state, new)
    may_exceed = state.live.totals.held_bytes + _most_added(new, settings) > most
    if not may_exceed or len(new) < 2:
        found = assemble(state, new)
        buried = sum(_tombstone_bytes(each.key or "") for each in found.letters if each.reason == "too_large")
        if settings.has_parts:
            buried += sum(_tombstone_bytes(each.key) for each in found.closed if each.ended_by == "limit")
        may_exceed = may_exceed or _tombstones_bytes(state) + buried > MAX_TOMBSTONES_BYTES
        if not may_exceed:
            return found
        if len(new) < 2:
            # Malformed records and clock records end no session here.
            is_event = found.counts.events > found.counts.malformed
            return _ended(found, int(new.column("offset")[0].as_py()), settings) if is_event else found
    middle = len(new) // 2
    first = within_limits(assemble, state, new.slice(0, middle), settings)
    second = within_limits(assemble, first.state, new.slice(middle), settings)
    return AssembledSessions(
        first.closed + second.closed,
        first.letters + second.letters,
        second.state,
        _added(first.counts, second.counts),
    )


def _most_added(new: pa.Table, settings: AssemblySettings) -> int:
    """Return an upper bound for the bytes that new records can add: values, and keys."""
    keys = MAX_KEY_BYTES * len(new)
    if settings.format in ("json", "bytes"):
        # A key is written out in its record. In Avro or Protobuf it may be an enum's name, of which the record has only the number.
        keys = min(keys, new.nbytes)
    return int(new.nbytes) + keys + _HEAD_BYTES * len(new)


def _ended(found: AssembledSessions, closing: int, settings: AssemblySettings) -> AssembledSessions:
    """If a limit is exceeded after the record at `closing`, end the oldest sessions, and drop the oldest tombstones."""
    assert settings.max_open_bytes is not None
    if (
        found.state.live.totals.held_bytes <= settings.max_open_bytes
        and _tombstones_bytes(found.state) <= MAX_TOMBSTONES_BYTES
    ):
        return found
    # This reads every open session, which is rare: ending some makes room for many more.
    sessions = found.state.sessions
    sizes, place = sessions.held_bytes, np.arange(len(sessions))
    tombstones = _TOMBSTONE_BYTES + np.diff(views(sessions.key)[0])
    ended = _too_many(sizes, settings.max_open_bytes)
    if settings.start:
        tombstones *= sessions.is_remembered
        forgotten = max(ended, _too_many(tombstones, MAX_TOMBSTONES_BYTES))
        forgotten = ended = _with_repeated(sessions, forgotten)
    else:
        tombstones *= sessions.is_remembered | (place < ended)
        forgotten = _too_many(tombstones, MAX_TOMBSTONES_BYTES)
        forgotten = _with_repeated(sessions, forgotten)
        ended = max(ended, forgotten)
    if not ended:
        return found
    ending = np.flatnonzero((place < ended) & ~sessions.is_tombstone)
    events = found.state.events_of(sessions.start[ending])
    detail = (
        f"the partition's open sessions had {int(sizes.sum())} bytes, or tombstones of {int(tombstones.sum())}, over "
        f"session.max_open_bytes = {settings.max_open_bytes} or {MAX_TOMBSTONES_BYTES}; the oldest end"
    )
    letters = [
        _letter(sessions, int(place), events.events, slice(low, high), closing, detail, settings)
        for place, low, high in zip(
            ending, events.first[:-1].tolist(), events.first[1:].tolist(), strict=True
        )
    ]
    forgetting = place < forgotten
    entries = OpenSessions.empty()
    if ended > forgotten:
        first = events.events.take(events.first[:-1])
        buried = sessions.buried(np.isin(place, ending), first)
        entries = buried.take(ending[ending >= forgotten])
    state = found.state.changed(sessions.start[forgetting], entries, EventChunk.empty()).with_last(
        found.state.last
    )
    letters = sorted(found.letters + letters, key=lambda each: (each.closing_offset, each.first_offset))
    return replace(found, letters=letters, state=state)


def _letter(
    sessions: OpenSessions,
    place: int,
    events: Events,
    rows: slice,
    closing: int,
    detail: str,
    settings: AssemblySettings,
) -> DeadLetter:
    offsets, times = events.offset[rows].tolist(), events.ts[rows].tolist()
    kept = list(zip(offsets, times, events.raws(rows.start, rows.stop), strict=True))
    in_header = settings.type_path is None
    types = events.types(rows.start, rows.stop, settings.names) if in_header else None
    start, last = int(sessions.start[place]), int(sessions.last[place])
    key = sessions.key[place].as_py()
    return DeadLetter(start, last, closing, "too_large", key, detail, kept, len(kept), types)


def _too_many(sizes: Int, most: int) -> int:
    """Return how many of the first sizes must go, so that the others leave some room below `most`."""
    total = int(sizes.sum())
    if total <= most:
        return 0
    left = total - np.cumsum(sizes)
    return int(np.argmax(left <= most - most // _ROOM)) + 1


def _with_repeated(sessions: OpenSessions, count: int) -> int:
    """Return how many of the first sessions, `count` or more, must go so that all their repeated starts lie before the others."""
    if not count:
        return 0
    newest = np.maximum.accumulate(sessions.repeated)
    apart = np.append(newest[count - 1 : -1] < sessions.start[count:], True)
    return count + int(np.argmax(apart))


def _tombstones_bytes(state: OpenState) -> int:
    totals = state.live.totals
    return _TOMBSTONE_BYTES * totals.remembered + totals.remembered_key_bytes


def _tombstone_bytes(key: str) -> int:
    return _TOMBSTONE_BYTES + len(key.encode())


def _added(one: Counts, other: Counts) -> Counts:
    return Counts(*(getattr(one, name) + getattr(other, name) for name in Counts.__slots__))
