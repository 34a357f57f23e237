"""The open sessions of a partition: a table of sessions, and chunks that hold their events.

Nothing of a session is copied while it stays open: its new events go into a new chunk, the older ones stay where they are, and when it
closes they are taken out of the chunks. Where there are too many chunks, the newest half is merged, and older ones with it that are no
larger than what it makes together. So an event is copied a few times at the most, and a batch costs what its own events cost, however
many sessions are open.

The digest is the identity of a state. It covers the table, which has checksums of each session's events, and not how the events lie in
chunks: wherever the input was cut, and whether sessions were carried on or found again in Kafka, equal open sessions have one digest.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spark_job.sessions.clock import LastRecords
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.state.binary import BinaryReader, aligned
from spark_job.sessions.state.chunks import EventChunk, Sums, collect
from spark_job.sessions.state.open_sessions import OpenSessions, digest

Int = npt.NDArray[np.int64]

_MOST_CHUNKS = 12
_MERGED_CHUNKS = 6
"""So many at the least, so that the next batches need not merge again. Of a few such pairs this one copied least, and left few chunks."""


@dataclass(frozen=True, eq=False)
class OpenState:
    """The open sessions of one partition at one offset."""

    sessions: OpenSessions
    chunks: tuple[EventChunk, ...] = ()
    """The older ones first. They may hold events of sessions that are not open any more."""
    last: LastRecords | None = None
    """What the clock needs of the records before; None where nothing open depends on it."""

    @classmethod
    def empty(cls) -> "OpenState":
        """Nothing is open."""
        return cls(OpenSessions.empty())

    @cached_property
    def digest(self) -> str:
        """The same for equal open sessions; empty where nothing is open."""
        return digest(self.encoded) if len(self.sessions) else ""

    @cached_property
    def encoded(self) -> bytes:
        """All but the events, in its canonical form."""
        if self.last is None:
            return self.sessions.encoded
        numbers = np.array(
            [self.last.offset, self.last.ts, self.last.other_offset, self.last.other_ts], "<i8"
        )
        key = self.last.key.encode()
        return b"".join([self.sessions.encoded, *aligned([numbers, np.array([len(key)], "<i8"), key])])

    @classmethod
    def decoded(cls, data: memoryview, chunks: Sequence[EventChunk]) -> "OpenState":
        """Read what `encoded` gave. Raises DamagedStateError where it cannot be that."""
        reader = BinaryReader(data)
        sessions, last = OpenSessions.read(reader), None
        if not reader.is_at_end:
            numbers, (size,) = reader.array("<i8", 4).tolist(), reader.array("<i8", 1).tolist()
            last = LastRecords(bytes(reader.take(size)).decode(), *numbers)
        return cls(sessions, tuple(chunks), last)

    def with_last(self, last: LastRecords | None) -> "OpenState":
        """The state after these records, as far as what is open depends on them."""
        kept = None
        if last is not None and len(self.sessions):
            kept = last.since(int(self.sessions.start[0]))
        return self if kept == self.last else replace(self, last=kept)

    def from_first_rules(self) -> "OpenState":
        """The state as newer rules take it over. Rules 1 remembered no repeated start: the last event may have been one."""
        unknown = self.sessions.irregular & (self.sessions.repeated < 0)
        if not unknown.any():
            return self
        repeated = np.where(unknown, self.sessions.last, self.sessions.repeated)
        return replace(self, sessions=replace(self.sessions, repeated=repeated))

    @property
    def safe_offset(self) -> int | None:
        """Where a rebuild must begin: the oldest start of a session. Tombstones do not count; None where no session is open."""
        starts = self.sessions.start[self.sessions.rows > 0]
        return int(starts[0]) if len(starts) else None

    @property
    def tombstones(self) -> OpenSessions:
        """The tombstones alone."""
        return self.sessions.take(np.flatnonzero(self.sessions.is_tombstone))

    def events_of(self, starts: Int, new: EventChunk | None = None) -> EventChunk:
        """The events of some open sessions (their starts, ascending; tombstones have none), followed by those in `new`, which has each.

        Raises DamagedStateError where they are not those that the table was made of.
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

    def with_types(self, judged: Iterable[tuple[int, int, Sequence[str]]]) -> "OpenState":
        """The state whose events at [low, high) have their types: (low, high, names of the kinds), where other settings judged them."""
        chunks = self.chunks
        for low, high, names in judged:
            chunks = tuple(chunk.with_types(low, high, names) for chunk in chunks)
        return replace(self, chunks=chunks)

    def after(self, sessions: OpenSessions, new: EventChunk) -> "OpenState":
        """The state with another table and the events of one chunk more."""
        if not sessions.rows.any():
            return OpenState(sessions, last=self.last)
        chunks = [chunk for chunk in (*self.chunks, new) if len(chunk)]
        if len(chunks) > _MOST_CHUNKS:
            size, merged = 0, list[EventChunk]()
            while chunks and (len(merged) < _MERGED_CHUNKS or chunks[-1].live(sessions) <= size):
                merged.insert(0, chunks.pop())
                size += merged[0].live(sessions)
            whole = _merged(merged, sessions)
            chunks += [whole] if len(whole) else []
        return OpenState(sessions, tuple(chunks), self.last)

    def without(self, ended: npt.NDArray[np.bool_]) -> "OpenState":
        """The state without some sessions (one flag for each)."""
        return replace(self, sessions=self.sessions.take(np.flatnonzero(~ended))).with_last(self.last)

    @property
    def remembered(self) -> bytes:
        """What no rebuild finds: the tombstones and which later parts are open, and with them what the clock needs. Empty without any."""
        which = np.flatnonzero(self.sessions.is_remembered)
        return OpenState(self.sessions.take(which), last=self.last).encoded if len(which) else b""

    @classmethod
    def awaiting(cls, remembered: bytes) -> "OpenState":
        """What a rebuild begins with: the later parts that it will find, without their events."""
        if not remembered:
            return cls.empty()
        given = cls.decoded(memoryview(remembered), ()).sessions
        parts = given.take(np.flatnonzero(~given.is_tombstone))
        nothing = {name: np.zeros_like(getattr(parts, name)) for name in ("rows", "n_bytes", *Sums._fields)}
        return cls(replace(parts, **nothing, irregular=np.ones(len(parts), bool)))

    def with_remembered(self, remembered: bytes, *, keep_own: bool = False) -> "OpenState":
        """The state with what `remembered` gave."""
        if not remembered:
            return self.with_tombstones(OpenSessions.empty(), keep_own=keep_own)
        given = OpenState.decoded(memoryview(remembered), ())
        state = self.with_tombstones(given.tombstones, keep_own=keep_own)
        return state if given.last is None else state.with_last(given.last)

    def with_tombstones(self, tombstones: OpenSessions, *, keep_own: bool = False) -> "OpenState":
        """The state with these tombstones instead of its own, or beside them, and without other sessions of their keys."""
        keys: Collection[str] = set(tombstones.key.to_pylist())
        entries = zip(self.sessions.key.to_pylist(), self.sessions.is_tombstone.tolist(), strict=True)
        kept = [key not in keys and (keep_own or not is_tombstone) for key, is_tombstone in entries]
        # A part that was awaited and is not there has been lost with the input.
        found = (self.sessions.rows > 0) | self.sessions.is_tombstone
        state = OpenState(self.sessions.changed(np.array(kept, bool) & found, tombstones), self.chunks)
        return state.with_last(self.last)


def _merged(chunks: Sequence[EventChunk], sessions: OpenSessions) -> EventChunk:
    """One chunk of what is open in some."""
    held = np.unique(np.concatenate([chunk.start for chunk in chunks]))
    return collect(chunks, np.intersect1d(held, sessions.start[sessions.rows > 0], assume_unique=True))
