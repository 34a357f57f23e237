"""Select the keys whose events are judged one by one (`event_rules`). Each session of another key is
a start (any event, if [session] start is empty), entries and, if it has closed, an end.

Each test works on whole columns. It may select too many keys, never too few: for a key without an anomaly, `event_rules` comes to the same
result.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.events import END, START
from spark_job.sessions.groups import Groups, int64
from spark_job.sessions.parsing.column_bytes import hidden
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import Touched

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


class Anomalies(NamedTuple):
    """The keys that must be judged event by event."""

    groups: Bool
    """By index of the group."""
    silent: Int
    """Open sessions without new events that other keys' records show to be silent: their places in `Groups.open`."""
    clock_matters: bool
    """Whether any session can fall silent."""


def find_anomalies(groups: Groups, settings: AssemblySettings) -> Anomalies:
    """Check all new events, and the sessions that were open before."""
    sessions = groups.open.sessions
    odd = np.zeros(len(groups), bool)
    silent = np.zeros(0, np.int64)
    if groups.latest is None:
        return Anomalies(odd, silent, False)
    if settings.start:  # else any event may open a session, and each end closes one
        odd[_against_grammar(groups)] = True
    odd[_over_limits(groups, settings)] = True
    known = groups.session >= 0
    odd[known] |= sessions.irregular[groups.session[known]]
    if groups.events.event_id is not None:
        odd[_with_repeated_ids(groups)] = True
    # Python integers: the difference of the sentinels would overflow.
    latest = groups.latest
    span = latest - min(
        (int(ts.min()) for ts in (groups.events.ts, sessions.max_ts) if len(ts)), default=latest
    )
    if span > settings.timeout_ms:
        odd[_with_own_gaps(groups, settings)] = True
    limit = settings.silence_ms
    if span > limit:
        odd[_with_silence(groups, limit)] = True
        has_new = np.zeros(len(sessions), bool)
        has_new[groups.session[known]] = True
        silent = np.flatnonzero(~has_new & (sessions.max_ts < latest - limit))
        silent = silent[_is_shown_silent(groups, sessions.take(silent), limit)]
    return Anomalies(odd, silent, span > limit)


def _against_grammar(groups: Groups) -> Int:
    """Return the groups with a segment that is not a start (none if it continues a session), entries and perhaps an end; only a group's
    last segment may lack an end.
    """
    segments, kind = groups.segments, groups.events.kind
    ends = np.add.reduceat(kind == END, segments.low, dtype=np.int64)
    starts = kind[segments.low] == START
    open_early = ~segments.ends & (segments.high != groups.past[segments.group])
    odd = (starts == (segments.continues >= 0)) | open_early | (ends > segments.ends)
    return np.asarray(segments.group[odd])


def _over_limits(groups: Groups, settings: AssemblySettings) -> Int:
    segments = groups.segments
    n_events = segments.high - segments.low
    n_bytes = np.add.reduceat(groups.events.sizes(), segments.low)
    continued = segments.continues >= 0
    n_events[continued] += groups.open.sessions.rows[segments.continues[continued]]
    n_bytes[continued] += groups.open.sessions.n_bytes[segments.continues[continued]]
    return segments.group[(n_events > settings.max_events) | (n_bytes > settings.max_bytes)]


def _with_repeated_ids(groups: Groups) -> Int:
    """Return the groups in which an event id occurs twice in a session."""
    assert groups.events.event_id is not None
    segments = groups.segments
    continued = np.flatnonzero(segments.continues >= 0)
    continued = continued[np.argsort(segments.continues[continued])]
    before = _events_of(groups.open, segments.continues[continued])
    of_session = np.searchsorted(groups.open.sessions.start[segments.continues[continued]], before.start)
    segment = np.concatenate(
        [
            np.repeat(np.arange(len(segments.low)), segments.high - segments.low),
            np.repeat(continued[of_session], np.diff(before.first)),
        ]
    )
    ids = hidden(pa.concat_arrays([groups.events.event_id, before.events.ids()])).dictionary_encode()
    known = ids.is_valid().to_numpy(zero_copy_only=False)
    distinct = len(ids.dictionary)
    if distinct == len(ids):
        return segments.group[:0]
    pairs = np.sort(segment[known] * distinct + int64(ids.indices.drop_null()))
    return np.asarray(segments.group[pairs[1:][pairs[1:] == pairs[:-1]] // distinct])


def _events_of(open_before: Touched, places: Int) -> EventChunk:
    sessions = open_before.sessions
    places = places[sessions.rows[places] > 0]
    return open_before.events_of(sessions.start[places]) if len(places) else EventChunk.empty()


def _with_own_gaps(groups: Groups, settings: AssemblySettings) -> Int:
    """Return the groups with an event later than its session's previous one plus the timeout. This covers every timeout."""
    segments, ts = groups.segments, groups.events.ts
    late = ts[1:] - ts[:-1] > settings.timeout_ms
    late[segments.low[1:] - 1] = False
    continued = np.flatnonzero(segments.continues >= 0)
    before = groups.open.sessions.max_ts[segments.continues[continued]]
    late_again = ts[segments.low[continued]] - before > settings.timeout_ms
    return np.concatenate([groups.group[1:][late], segments.group[continued[late_again]]])


def _with_silence(groups: Groups, limit_ms: int) -> Int:
    """Return the groups with an event that is followed, before their next one, by records of other keys later than it plus the limit."""
    open_after = np.flatnonzero(groups.events.kind != END)
    low, high = groups.until_next(open_after)
    agreed = groups.clock.latest_agreed(low, high, groups.events.offset[open_after])
    silent = agreed > groups.events.ts[open_after] + limit_ms
    known = np.flatnonzero(groups.session >= 0)
    sessions = groups.open.sessions.take(groups.session[known])
    until = groups.place[groups.first[known]]
    before = groups.clock.latest_agreed(np.zeros(len(known), np.int64), until, sessions.last)
    silent_before = before > sessions.max_ts + limit_ms
    return np.concatenate([groups.group[open_after[silent]], known[silent_before]])


def _is_shown_silent(groups: Groups, sessions: OpenSessions, limit_ms: int) -> Bool:
    """Return whether other keys' records show that each session is silent. The sessions have no new events."""
    low, high = np.zeros(len(sessions), np.int64), np.full(len(sessions), len(groups.clock))
    agreed = groups.clock.latest_agreed(low, high, sessions.last)
    return np.asarray(agreed > sessions.max_ts + limit_ms)
