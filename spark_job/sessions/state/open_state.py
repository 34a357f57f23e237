"""The open sessions of a partition: their table (`live_sessions`), and chunks with their events.

A session's new events go into a new chunk; its older events are not moved. When the session closes, its events stay in their chunks until
these are merged, except in a chunk that the cache has not written yet (`without_closed`).
If there are too many chunks, the newest ones are merged, and with them each next older one that has no more events of open sessions than
all merged so far. So an event is copied a few times at most, and the cost of a batch depends on its own events, not on the number of open
sessions.

The digest identifies a state. It covers the table, which has checksums of each session's events. It does not cover the division into
segments and chunks: equal open sessions have equal digests, wherever the input was cut, and whether the sessions were cached or rebuilt
from Kafka. assembly/task.py (`_open`) chooses between the cache and a rebuild.
"""

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.clock import LastRecords, hashed_key
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.state.binary import BinaryReader, aligned
from spark_job.sessions.state.chunks import EventChunk, Sums, collect
from spark_job.sessions.state.live_sessions import LiveSessions
from spark_job.sessions.state.open_sessions import OpenSessions

Int = npt.NDArray[np.int64]

_MOST_CHUNKS = 12
_MERGED_CHUNKS = 6
"""Fewest chunks that are merged at a time, so that the next batches need not merge again. Of the few pairs of
numbers that were tried, this one copied least."""


class HeldChunk(NamedTuple):
    """A chunk of a state, and its counts."""

    chunk: EventChunk
    live: int
    """How many of its events belonged to open sessions when they were counted."""
    gone: int
    """`OpenState.gone` when they were counted."""


@dataclass(frozen=True, eq=False)
class Touched:
    """Some open sessions, and where their events are."""

    sessions: OpenSessions
    chunks: tuple[EventChunk, ...]

    def events_of(self, starts: Int, new: EventChunk | None = None) -> EventChunk:
        """Return the events of some sessions, each session's followed by those in `new`. `starts`: ascending; tombstones have no events.

        Raises DamagedStateError if the older events do not have the table's checksums.
        """
        places = self.sessions.places(starts)
        with_events = self.sessions.rows[places] > 0
        places = places[with_events]
        # A tombstone's former events may still lie in a chunk.
        found = collect([*self.chunks, *([] if new is None else [new])], starts[with_events])
        rows = self.sessions.rows[places]
        held = rows if new is None else rows + np.diff(new.first)
        if len(found.start) != len(places) or (np.diff(found.first) != held).any():
            raise DamagedStateError("events of an open session are missing")
        sums = found.sums(Sums.nothing(len(places)), rows)
        wanted = Sums.of(self.sessions)
        if not all(np.array_equal(a, b[places]) for a, b in zip(sums, wanted, strict=True)):
            raise DamagedStateError("an open session has other events than it had")
        return found


@dataclass(frozen=True, eq=False)
class OpenState:
    """The open sessions of one partition at one offset."""

    live: LiveSessions
    held: tuple[HeldChunk, ...] = ()
    """The older ones first. They may contain events of sessions that are no longer open."""
    last: LastRecords | None = None
    """What the clock needs of the records before; None if no open session depends on it."""
    gone: int = 0
    """Events that have left the state since it began: of closed sessions and of tombstones."""

    @classmethod
    def empty(cls) -> "OpenState":
        """Return the state with no open session."""
        return cls(LiveSessions())

    @classmethod
    def of(
        cls, sessions: OpenSessions, chunks: Sequence[EventChunk] = (), last: LastRecords | None = None
    ) -> "OpenState":
        """Return the state of a whole table."""
        live = LiveSessions.of(sessions)
        return cls(live, tuple(_counted(chunk, live, 0) for chunk in chunks), last)

    @property
    def sessions(self) -> OpenSessions:
        """All open sessions. The cost grows with their number: a batch may read it in rare cases only."""
        return self.live.table

    @property
    def chunks(self) -> tuple[EventChunk, ...]:
        """The chunks, the older ones first."""
        return tuple(held.chunk for held in self.held)

    @cached_property
    def digest(self) -> str:
        """Equal for equal open sessions; empty if none is open."""
        return self.live.totals.hashes.digest(_encoded_last(self.last))

    @cached_property
    def encoded(self) -> bytes:
        """The table and what the clock needs, without events, in a canonical form."""
        return self.sessions.encoded + _encoded_last(self.last)

    @classmethod
    def decoded(cls, data: memoryview, chunks: Sequence[EventChunk]) -> "OpenState":
        """Read what `encoded` returned. Raises DamagedStateError if `data` cannot be that."""
        reader = BinaryReader(data)
        sessions, last = OpenSessions.read(reader), None
        if not reader.is_at_end:
            numbers, (size,) = reader.array("<i8", 4).tolist(), reader.array("<i8", 1).tolist()
            # The releases before digests of form 3 wrote the key itself.
            key = bytes(reader.take(size)).decode()
            last = LastRecords(hashed_key(key, numbers[0]), *numbers)
        return cls.of(sessions, chunks, last)

    def with_last(self, last: LastRecords | None) -> "OpenState":
        """Return the state with what its open sessions need of `last`."""
        oldest = self.live.oldest
        kept = None if last is None or oldest is None else last.since(oldest)
        return self if kept == self.last else replace(self, last=kept)

    def from_first_rules(self) -> "OpenState":
        """Return a state of rules 1 for newer rules. Rules 1 noted no repeated start, so the last event may have been one."""
        sessions = self.sessions
        unknown = sessions.irregular & (sessions.repeated < 0)
        if not unknown.any():
            return self
        repeated = np.where(unknown, sessions.last, sessions.repeated)
        return replace(self, live=LiveSessions.of(replace(sessions, repeated=repeated)))

    @property
    def safe_offset(self) -> int | None:
        """Where a rebuild must begin: the oldest start of a session. Tombstones do not count; None if no session is open."""
        return self.live.oldest_with_events

    @property
    def tombstones(self) -> OpenSessions:
        """The tombstones alone."""
        remembered = self.live.remembered
        return remembered.take(np.flatnonzero(remembered.is_tombstone))

    def touched(self, keys: pa.LargeStringArray, quieter_than: int | None = None) -> Touched:
        """Return the open sessions of some keys, perhaps of a few others, too, and those whose greatest time is below `quieter_than`."""
        return Touched(self.live.with_keys(keys, quieter_than), self.chunks)

    def events_of(self, starts: Int) -> EventChunk:
        """Return the events of some open sessions: see Touched."""
        return Touched(self.live.with_starts(starts), self.chunks).events_of(starts)

    def with_types(self, judged: Iterable[tuple[int, int, Sequence[str]]]) -> "OpenState":
        """Return the state with types for events that other settings judged. `judged`: (low, high, the kinds' names in [low, high))."""
        held = self.held
        for low, high, names in judged:
            held = tuple(each._replace(chunk=each.chunk.with_types(low, high, names)) for each in held)
        return replace(self, held=held)

    def changed(self, ended: Int, entries: OpenSessions, new: EventChunk) -> "OpenState":
        """Return the state without the `ended` starts, with `entries` (LiveSessions.changed), and with one more chunk."""
        live = self.live.changed(ended, entries)
        gone = self.gone + self.live.totals.events + len(new) - live.totals.events
        if not live.totals.events:
            return OpenState(live, last=self.last)
        held = [*self.held, HeldChunk(new, len(new), gone)] if len(new) else [*self.held]
        return OpenState(live, tuple(_merged(held, live, gone)), self.last, gone)

    def without_closed(self, kept: Set[EventChunk]) -> "OpenState":
        """Return the state without the events that closed sessions have left in chunks. `kept`: chunks that stay as they are.

        Costs nothing if no chunk but those kept has such events and is older than the newest change. Raises DamagedStateError.
        """
        held = [each if each.chunk in kept else _live_part(each, self.live, self.gone) for each in self.held]
        if all(now.chunk is before.chunk for now, before in zip(held, self.held, strict=True)):
            return self
        return replace(self, held=tuple(each for each in held if each.live))

    @property
    def remembered(self) -> bytes:
        """Return what no rebuild finds: tombstones, which later parts are open, and what the clock needs. Empty without the first two."""
        return self.live.remembered.encoded + _encoded_last(self.last) if self.live.totals.remembered else b""

    @classmethod
    def awaiting(cls, remembered: bytes) -> "OpenState":
        """Return the state with which a rebuild begins: the later parts that the rebuild will find, without their events."""
        if not remembered:
            return cls.empty()
        given = cls.decoded(memoryview(remembered), ()).sessions
        parts = given.take(np.flatnonzero(~given.is_tombstone))
        nothing = {name: np.zeros_like(getattr(parts, name)) for name in ("rows", "n_bytes", *Sums._fields)}
        return cls(LiveSessions.of(replace(parts, **nothing, irregular=np.ones(len(parts), bool))))

    def with_remembered(self, remembered: bytes, *, keep_own: bool = False) -> "OpenState":
        """Return the state with what `remembered` returned. `keep_own`: see `with_tombstones`."""
        if not remembered:
            return self.with_tombstones(OpenSessions.empty(), keep_own=keep_own)
        given = OpenState.decoded(memoryview(remembered), ())
        state = self.with_tombstones(given.tombstones, keep_own=keep_own)
        return state if given.last is None else state.with_last(given.last)

    def with_tombstones(self, tombstones: OpenSessions, *, keep_own: bool = False) -> "OpenState":
        """Return the state with these tombstones, and without other sessions of their keys and without parts that were not found.

        `keep_own`: whether the state's own tombstones stay, too.
        """
        sessions = self.sessions
        keys: Collection[str] = set(tombstones.key.to_pylist())
        entries = zip(sessions.key.to_pylist(), sessions.is_tombstone.tolist(), strict=True)
        kept = [key not in keys and (keep_own or not is_tombstone) for key, is_tombstone in entries]
        # If an awaited part was not found, the input has lost it.
        found = (sessions.rows > 0) | sessions.is_tombstone
        state = OpenState.of(sessions.changed(np.array(kept, bool) & found, tombstones), self.chunks)
        return state.with_last(self.last)


def _encoded_last(last: LastRecords | None) -> bytes:
    if last is None:
        return b""
    numbers = np.array([last.offset, last.ts, last.other_offset, last.other_ts], "<i8")
    key = last.key_hash.encode()
    return b"".join(aligned([numbers, np.array([len(key)], "<i8"), key]))


def _counted(chunk: EventChunk, live: LiveSessions, gone: int) -> HeldChunk:
    """Count a chunk's events."""
    return HeldChunk(chunk, int(np.diff(chunk.first)[live.have_events(chunk.start)].sum()), gone)


def _live_part(held: HeldChunk, live: LiveSessions, gone: int) -> HeldChunk:
    """Return a chunk with the events of open sessions only."""
    if held.gone == gone and held.live == len(held.chunk):
        return held  # nothing has left the state since all its events were counted
    is_open = live.have_events(held.chunk.start)
    if is_open.all():
        return HeldChunk(held.chunk, len(held.chunk), gone)
    left = collect([held.chunk], held.chunk.start[is_open])
    return HeldChunk(left, len(left), gone)


def _merged(held: list[HeldChunk], live: LiveSessions, gone: int) -> list[HeldChunk]:
    """Return the chunks, with some of the newest ones merged if there are too many."""
    if len(held) <= _MOST_CHUNKS:
        return held
    size, merged = 0, list[HeldChunk]()
    while held:
        newest = held[-1]
        is_due = len(merged) < _MERGED_CHUNKS
        # All events that have left since the count may have been in this chunk. If it is too large even then, no new count is needed.
        if is_due or newest.live - (gone - newest.gone) <= size:
            held[-1] = newest = _counted(newest.chunk, live, gone)
        if not is_due and newest.live > size:
            break
        merged.insert(0, held.pop())
        size += newest.live
    named = np.unique(np.concatenate([each.chunk.start for each in merged]))
    whole = collect([each.chunk for each in merged], named[live.have_events(named)])
    return [*held, HeldChunk(whole, len(whole), gone)] if len(whole) else held
