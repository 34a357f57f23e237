"""The open sessions of a partition: a table of sessions, and chunks that hold their events.

Nothing of a session is copied while it stays open: its new events go into a new chunk, the older ones stay where they are, and when it
closes they are taken out of the chunks. Where there are too many chunks, the newest half is merged, and older ones with it that are no
larger than what it makes together. So an event is copied a few times at the most, and a batch costs what its own events cost, however
many sessions are open.

The digest is the identity of a state. It covers the table, which has checksums of each session's events, and not how the events lie in
chunks: wherever the input was cut, and whether sessions were carried on or found again in Kafka, equal open sessions have one digest.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spark_job.sessions.errors import DamagedStateError
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

    @classmethod
    def empty(cls) -> "OpenState":
        """Nothing is open."""
        return cls(OpenSessions.empty())

    @cached_property
    def digest(self) -> str:
        """The same for equal open sessions; empty where nothing is open."""
        return digest(self.sessions.encoded) if len(self.sessions) else ""

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

    def after(self, sessions: OpenSessions, new: EventChunk) -> "OpenState":
        """The state with another table and the events of one chunk more."""
        if not sessions.rows.any():
            return OpenState(sessions)
        chunks = [chunk for chunk in (*self.chunks, new) if len(chunk)]
        if len(chunks) > _MOST_CHUNKS:
            size, merged = 0, list[EventChunk]()
            while chunks and (len(merged) < _MERGED_CHUNKS or chunks[-1].live(sessions) <= size):
                merged.insert(0, chunks.pop())
                size += merged[0].live(sessions)
            whole = _merged(merged, sessions)
            chunks += [whole] if len(whole) else []
        return OpenState(sessions, tuple(chunks))

    def with_tombstones(self, tombstones: OpenSessions, *, keep_own: bool = False) -> "OpenState":
        """The state with these tombstones instead of its own, or beside them, and without other sessions of their keys."""
        keys: Collection[str] = set(tombstones.key.to_pylist())
        entries = zip(self.sessions.key.to_pylist(), self.sessions.is_tombstone.tolist(), strict=True)
        kept = [key not in keys and (keep_own or not is_tombstone) for key, is_tombstone in entries]
        return OpenState(self.sessions.changed(np.array(kept, bool), tombstones), self.chunks)


def _merged(chunks: Sequence[EventChunk], sessions: OpenSessions) -> EventChunk:
    """One chunk of what is open in some."""
    held = np.unique(np.concatenate([chunk.start for chunk in chunks]))
    return collect(chunks, np.intersect1d(held, sessions.start[sessions.rows > 0], assume_unique=True))
