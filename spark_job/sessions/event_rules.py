"""Judge a key's events one by one: which session each belongs to, and what ends a session. For keys with any anomaly (`anomalies`).

For each event, in this order (docs/sessions.md):
1. If other keys' records since the session's last event show silence (`clock`), the session ends.
2. If the event is later than the session's timeout, the session ends, and the event is judged as if no session had been open.
3. A duplicate is dropped: an entry whose id the session has already, or a start with the id or the bytes of the session's start.
4. The event begins, continues or ends a session, within the limits of a session. `partition_limits` applies the partition's limit.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from spark_job.sessions.clock import Clock
from spark_job.sessions.events import END, ENTRY, START, Events
from spark_job.sessions.result import ClosedSession, Counts, DeadLetter, Reason, Unended
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_sessions import payload_hash, start_hashes


@dataclass(slots=True)
class OpenSession:
    """A key's open session, or its tombstone after it exceeded a limit."""

    start: int
    last: int
    max_ts: int
    rows: list[int]
    """Indexes of its events in `EventJudge.events`; empty for a tombstone."""
    n_bytes: int
    irregular: bool = False
    """Whether duplicates were dropped."""
    repeated: int = -1
    """See OpenSessions.repeated."""
    ids: set[bytes] = field(default_factory=set)
    start_hash: bytes | None = None
    """Set for a tombstone."""
    part: int = 1
    start_id: bytes | None = None
    """The start's event id; in a tombstone its hash, which takes less room in the ledger."""

    @property
    def is_tombstone(self) -> bool:
        """Whether its further events are dropped."""
        return self.start_hash is not None

    @property
    def is_awaited(self) -> bool:
        """Whether it is a later part whose start a rebuild has not reached yet. Events below the start belong to earlier parts."""
        return not self.rows and not self.is_tombstone


@dataclass(frozen=True, slots=True)
class NewEvents:
    """One key's new events in offset order."""

    rows: list[int]
    offset: list[int]
    ts: list[int]
    kind: list[int]
    event_id: list[bytes | None]
    silence: list[tuple[int, int, int]]
    """Other keys' records before the first event, then those after each event until the next one: (their latest time, begin and end of
    their range of places on the clock)."""


class EventJudge:
    """Judges the events of one key after another, and collects the results."""

    def __init__(self, settings: AssemblySettings, events: Events, clock: Clock) -> None:
        self.settings = settings
        self.events = events
        self.clock = clock
        self.closed: list[ClosedSession] = []
        self.letters: list[DeadLetter] = []
        self.counts = Counts()
        self._sizes = events.sizes()

    def run(self, key: str, session: OpenSession | None, new: NewEvents) -> OpenSession | None:
        """Judge one key's new events; return the session that is open after them."""
        timeout = self.settings.timeout_ms
        events = zip(new.rows, new.offset, new.ts, new.kind, new.event_id, new.silence[1:], strict=True)
        if session is not None and session.is_awaited:
            begin = bisect_left(new.offset, session.start)
            if begin == len(new.rows):
                return session
            row, offset, ts, kind, event_id, silence = next(islice(events, begin, None))
            session = self._begin_part(
                key, row, offset, max(ts, session.max_ts), kind, event_id, session.part
            )
            session = self._end_if_silent(key, session, *silence)
        else:
            session = self._end_if_silent(key, session, *new.silence[0])
        for row, offset, ts, kind, event_id, silence in events:
            if session is not None and ts > session.max_ts + timeout:
                late = f"this event is {ts - session.max_ts} ms later than the session's latest, over {timeout} ms"
                self._time_out(key, session, offset, late)
                session = None
            if session is None:
                session = self._first(key, row, offset, ts, kind, event_id)
            else:
                session = self._next(key, session, row, offset, ts, kind, event_id)
            session = self._end_if_silent(key, session, *silence)
        return session

    def _first(
        self, key: str, row: int, offset: int, ts: int, kind: int, event_id: bytes | None
    ) -> OpenSession | None:
        """Judge an event while no session is open."""
        if kind != START and self.settings.start:
            (name,) = self.events.types(row, row + 1, self.settings.names)
            detail = f"{name!r} without an open session of its key"
            kept = [(offset, ts, self.events.raw(row))]
            types = None if self.settings.type_path is not None else [name]
            self.letters.append(DeadLetter(offset, offset, offset, "no_start", key, detail, kept, 1, types))
            return None
        session = OpenSession(offset, offset, ts, [], 0, start_id=event_id)
        return self._take(key, session, row, offset, ts, kind, event_id)

    def _next(
        self,
        key: str,
        session: OpenSession,
        row: int,
        offset: int,
        ts: int,
        kind: int,
        event_id: bytes | None,
    ) -> OpenSession | None:
        """Judge an event while a session is open."""
        if session.is_tombstone:
            if kind == START and not self._repeats(session, row, event_id):
                return self._first(key, row, offset, ts, kind, event_id)
            self.counts.swallowed += 1
            self._drop(session, offset, ts, kind)
            return None if kind == END else session
        if self._is_duplicate(session, row, kind, event_id):
            self.counts.duplicates += 1
            session.irregular = True
            self._drop(session, offset, ts, kind)
            return session
        if kind == START:
            again = "another start event while the session was open"
            self._letter(key, session, "restarted", session.last, offset, again)
            return self._first(key, row, offset, ts, kind, event_id)
        return self._take(key, session, row, offset, ts, kind, event_id)

    def _drop(self, session: OpenSession, offset: int, ts: int, kind: int) -> None:
        """Drop an event. Note a dropped start: a rebuild that begins after the session's start would take it for the start of a session."""
        self._extend(session, offset, ts)
        if kind == START and self.settings.rules_version >= 2:
            session.repeated = offset

    def _extend(self, session: OpenSession, offset: int, ts: int) -> None:
        session.last = offset
        session.max_ts = max(session.max_ts, ts)
        if not self.settings.start:
            session.repeated = offset

    def _take(
        self,
        key: str,
        session: OpenSession,
        row: int,
        offset: int,
        ts: int,
        kind: int,
        event_id: bytes | None,
    ) -> OpenSession | None:
        """Add an event to the session. The event may exceed a limit, or end the session."""
        last = session.last
        self._extend(session, offset, ts)
        n_bytes = session.n_bytes + int(self._sizes[row])
        if len(session.rows) >= self.settings.max_events or n_bytes > self.settings.max_bytes:
            if self.settings.has_parts and session.rows:
                self._close(key, session, Unended("limit", last, offset))
                return self._begin_part(key, row, offset, session.max_ts, kind, event_id, session.part + 1)
            return self._bury(key, session, row, n_bytes, kind)
        session.rows.append(row)
        session.n_bytes = n_bytes
        if event_id is not None:
            session.ids.add(event_id)
        if kind != END:
            return session
        self._close(key, session, None)
        return None

    def _begin_part(
        self, key: str, row: int, offset: int, max_ts: int, kind: int, event_id: bytes | None, part: int
    ) -> OpenSession | None:
        """Begin the next part of a session with an event. `max_ts`: the latest time of the whole session."""
        session = OpenSession(offset, offset, max_ts, [], 0, start_id=event_id, part=part)
        return self._take(key, session, row, offset, max_ts, kind, event_id)

    def _close(self, key: str, session: OpenSession, unended: Unended | None) -> None:
        events = self.events.take(np.array(session.rows))
        self.closed.append(
            ClosedSession(key, events, 0, len(events), self.settings.names, unended, session.part)
        )

    def _time_out(self, key: str, session: OpenSession, closing: int, detail: str) -> None:
        """End a session by timeout; `on_timeout` decides between outputs and a letter.

        `closing`: offset of the record that showed the timeout; `detail`: for a letter.
        """
        if self.settings.on_timeout == "emit" and not session.is_tombstone:
            self._close(key, session, Unended("timeout", session.last, closing))
        else:
            self._letter(key, session, "timed_out", session.last, closing, detail)

    def _bury(self, key: str, session: OpenSession, row: int, n_bytes: int, kind: int) -> OpenSession | None:
        """Dead-letter a session over a limit; a tombstone remains, unless this event is the session's end."""
        limits = self.settings
        detail = (
            f"{len(session.rows) + 1} events of {n_bytes} bytes, "
            f"over session.max_events = {limits.max_events} or session.max_bytes = {limits.max_bytes}"
        )
        self._letter(key, session, "too_large", session.last, session.last, detail, over=1)
        if kind == END:
            return None
        first = session.rows[0] if session.rows else row
        is_start = bool(self.events.kind[first] == START)
        session.start_hash, session.start_id = start_hashes(
            is_start, self.events.raw(first), session.start_id
        )
        session.rows, session.n_bytes, session.ids, session.part = [], 0, set(), 1
        return session

    def _end_if_silent(
        self, key: str, session: OpenSession | None, latest: int, low: int, high: int
    ) -> OpenSession | None:
        """Time the session out if other keys' records show its silence.

        `latest`: the latest time, agreed or not, of the records at the places [low, high).
        """
        if session is None:
            return None
        limit = session.max_ts + self.settings.silence_ms
        if latest <= limit:
            return session
        shown = self.clock.first_agreed(low, high, session.last, limit)
        if shown is None:
            return session
        quiet = (
            f"a later record of the partition is over {limit - session.max_ts} ms past the session's latest"
        )
        self._time_out(key, session, shown, quiet)
        return None

    def _letter(
        self,
        key: str,
        session: OpenSession,
        reason: Reason,
        last: int,
        closing: int,
        detail: str,
        over: int = 0,
    ) -> None:
        """Dead-letter a session. A tombstone has its letter already."""
        if session.is_tombstone:
            return
        events = self.events.take(np.array(session.rows, np.int64))
        offsets, times = events.offset.tolist(), events.ts.tolist()
        kept = list(zip(offsets, times, events.raws(0, len(events)), strict=True))
        in_header = self.settings.type_path is None
        types = events.types(0, len(events), self.settings.names) if in_header else None
        if session.part > 1:
            detail = f"part {session.part} of its session: {detail}"
        self.letters.append(
            DeadLetter(session.start, last, closing, reason, key, detail, kept, len(kept) + over, types)
        )

    def _is_duplicate(self, session: OpenSession, row: int, kind: int, event_id: bytes | None) -> bool:
        """Return whether the event repeats the start or an entry of the session. (After an end, no session would be open.)

        Since rules 2, a start or an end with an entry's id is no duplicate: a tombstone does not keep entries' ids, and a rebuild might not
        read them.
        """
        if kind == START and self._repeats(session, row, event_id):
            return True
        return event_id in session.ids and (kind == ENTRY or self.settings.rules_version < 2)

    def _repeats(self, session: OpenSession, row: int, event_id: bytes | None) -> bool:
        """Return whether a start event repeats the session's start. A session that began under other rules may have no start."""
        payload = self.events.raw(row)
        if session.start_hash is not None:
            same_id = event_id is not None and payload_hash(event_id) == session.start_id
            return same_id or payload_hash(payload) == session.start_hash
        first = session.rows[0]
        if self.events.kind[first] != START:
            return False
        same_id = event_id is not None and event_id == session.start_id
        return same_id or payload == self.events.raw(first)
