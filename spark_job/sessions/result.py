"""What one call of the assembler gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from spark_job.sessions.store import EventStore

Reason = Literal["malformed", "no_start", "restarted", "timed_out", "too_large"]


class ClosedSession:
    """A whole session. Its events are read out of the batch only when asked for."""

    __slots__ = ("_rows", "_store", "end_offset", "ended_ms", "key", "source", "start_offset", "started_ms")

    def __init__(
        self,
        key: str,
        source: int,
        start_offset: int,
        end_offset: int,
        started_ms: int,
        ended_ms: int,
        store: EventStore,
        rows: npt.NDArray[Any],
    ) -> None:
        self.key = key
        self.source = source
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.started_ms = started_ms
        self.ended_ms = ended_ms
        self._store = store
        self._rows = rows

    @property
    def n_events(self) -> int:
        """Events in the session; dropped duplicates do not count."""
        return len(self._rows)

    def offsets(self) -> list[int]:
        """The events' offsets, ascending."""
        return self._store.offset[self._rows].tolist()  # type: ignore[no-any-return]

    def timestamps_ms(self) -> list[int]:
        """The events' times, epoch milliseconds."""
        return self._store.ts[self._rows].tolist()  # type: ignore[no-any-return]

    def types(self) -> list[str]:
        """The events' types."""
        return [self._store.names[kind] for kind in self._store.kind[self._rows].tolist()]

    def raws(self) -> list[bytes]:
        """The events' payloads, the exact bytes."""
        return self._store.raws(self._rows)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Events that do not make a session, and why."""

    source: int
    first_offset: int
    last_offset: int
    closing_offset: int
    """Of the record that decided it (design §1, closing position)."""
    reason: Reason
    key: str | None
    """None where the record has no valid key."""
    detail: str
    """For people."""
    events: Sequence[tuple[int, int, bytes | None]]
    """(offset, epoch ms, payload), kept up to the session's limits. The payload of a record without a value is None."""
    n_events: int
    """Events counted, also those over the limit; dropped duplicates are not counted."""
    types: Sequence[str | None] | None = None
    """Of the kept events, where the type is a record header; None where the events' values tell it. A missing header is None."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What stays open in the bucket."""

    open_sessions: int = 0
    """Tombstones of sessions over the limit included."""
    open_events: int = 0
    open_bytes: int = 0
    """The open sessions' payloads, in bytes."""
    state_bytes: int = 0
    oldest_open: dict[int, int] = field(default_factory=dict)
    """By source: the offset of the oldest start of an open session."""


@dataclass(slots=True)
class Counts:
    """Of one call. All but `per_event` are the same for any cut of the input into batches."""

    events: int = 0
    """New records, malformed ones included."""
    sessions: int = 0
    malformed: int = 0
    duplicates: int = 0
    """Dropped: repeated starts and repeated event ids."""
    swallowed: int = 0
    """By sessions over the limit."""
    per_event: int = 0
    """New records of keys that needed the per-event path."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """Sessions sorted by (source, end offset); letters by (source, closing offset, first offset, reason)."""

    closed: list[ClosedSession]
    letters: list[DeadLetter]
    open_state: bytes | None
    """None where nothing is open."""
    summary: Summary
    counts: Counts
