"""The result of one call of the assembler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from spark_job.api import EndedBy
from spark_job.sessions.events import Events, OrderedEvents
from spark_job.sessions.state.open_state import OpenState

Reason = Literal["malformed", "no_start", "restarted", "timed_out", "too_large", "transform_failed"]


class Unended(NamedTuple):
    """How a session closed without its end event."""

    by: EndedBy
    last_offset: int
    """Of the last event, dropped duplicates included."""
    closing_offset: int
    """Of the record that decided that the session is over."""


class ClosedSession:
    """A session that has closed, or a part of one: consecutive rows of a call's events, which are read only on demand."""

    __slots__ = ("_begin", "_end", "_events", "_names", "_unended", "key", "part")

    def __init__(
        self,
        key: str,
        events: Events | OrderedEvents,
        begin: int,
        end: int,
        names: Sequence[str],
        unended: Unended | None = None,
        part: int = 1,
    ) -> None:
        """`names`: of the kinds START, ENTRY and END. `unended`: None if the last event is the end event. `part`: see Session."""
        self.key = key
        self.part = part
        self._unended = unended
        self._events, self._begin, self._end = events, begin, end
        self._names = names

    @property
    def start_offset(self) -> int:
        """Of the first event, which is the start event unless any event may begin a session."""
        return int(self._events.offset[self._begin])

    @property
    def end_offset(self) -> int:
        """Of the last event that was kept. It identifies the session within its partition."""
        return int(self._events.offset[self._end - 1])

    @property
    def last_offset(self) -> int:
        """Of the last event, dropped duplicates included."""
        return self.end_offset if self._unended is None else self._unended.last_offset

    @property
    def closing_offset(self) -> int:
        """Of the record that decided that the session is over."""
        return self.end_offset if self._unended is None else self._unended.closing_offset

    @property
    def ended_by(self) -> EndedBy:
        """What ended it."""
        return "end" if self._unended is None else self._unended.by

    @property
    def started_ms(self) -> int:
        """Time of the first event, epoch milliseconds."""
        return int(self._events.ts[self._begin])

    @property
    def ended_ms(self) -> int:
        """Time of the last event that was kept, epoch milliseconds."""
        return int(self._events.ts[self._end - 1])

    @property
    def n_events(self) -> int:
        """Events in the session; dropped duplicates do not count."""
        return self._end - self._begin

    def offsets(self) -> list[int]:
        """The events' offsets, ascending."""
        return self._events.offset[self._begin : self._end].tolist()  # type: ignore[no-any-return]

    def timestamps_ms(self) -> list[int]:
        """The events' times, epoch milliseconds."""
        return self._events.ts[self._begin : self._end].tolist()  # type: ignore[no-any-return]

    def types(self) -> list[str]:
        """The events' types."""
        return self._events.types(self._begin, self._end, self._names)

    def raws(self) -> list[bytes]:
        """The events' payloads, the exact bytes."""
        return self._events.raws(self._begin, self._end)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Events that do not make a session, and why."""

    first_offset: int
    last_offset: int
    closing_offset: int
    """Of the record that decided this verdict."""
    reason: Reason
    key: str | None
    """None if the record has no valid key."""
    detail: str
    """For people."""
    events: Sequence[tuple[int, int, bytes | None]]
    """(offset, epoch ms, payload), kept up to the session's limits. The payload of a record without a value is None."""
    n_events: int
    """Number of events, the one that exceeded the limit included, dropped duplicates excluded."""
    types: Sequence[str | None] | None = None
    """Of the kept events, if types come from a header (None for a missing one). None if the events' values contain them."""


@dataclass(slots=True)
class Counts:
    """Counts of one call. The sums of all but `per_event` are the same for any cut of the input into calls."""

    events: int = 0
    """New records, malformed ones included and clock records excepted."""
    sessions: int = 0
    malformed: int = 0
    duplicates: int = 0
    """Events dropped as duplicates: repeated starts and repeated event ids."""
    swallowed: int = 0
    """Events dropped because their session has exceeded a limit."""
    per_event: int = 0
    """New records of keys that were judged event by event."""


@dataclass(frozen=True, slots=True)
class AssembledSessions:
    """Sessions sorted by closing offset; letters by (closing offset, first offset, reason)."""

    closed: list[ClosedSession]
    letters: list[DeadLetter]
    state: OpenState
    """The sessions that are open now."""
    counts: Counts
