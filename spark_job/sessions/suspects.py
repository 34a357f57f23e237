"""Find the groups that may need more than the plain grammar: start, entries, end.

Each test looks at whole columns. It may suspect too much, never too little: the per-event path has the last word and
gives clean groups the same result.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.grouping import Grouping, int64
from spark_job.sessions.state import OpenState
from spark_job.sessions.store import END, START

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def odd_groups(groups: Grouping, state: OpenState) -> Bool:
    """By index of the group: whether it must go event by event."""
    odd = np.zeros(len(groups.number), bool)
    if not len(odd):
        return odd
    settings = groups.settings
    odd[_against_grammar(groups)] = True
    odd[_over_limits(groups)] = True
    odd[np.isin(groups.number, groups.session_number[state.irregular])] = True
    if groups.store.event_id is not None:
        odd[_with_repeated_ids(groups)] = True
    if groups.span_ms > settings.timeout_ms:
        odd[_with_own_gaps(groups)] = True
    if groups.span_ms > settings.timeout_ms + settings.grace_ms:
        odd[_with_silence(groups)] = True
    return odd


def _against_grammar(groups: Grouping) -> Int:
    """A segment is a start and entries, with an end only as its last; only a group's last segment is open."""
    segments = groups.segments
    ends = np.add.reduceat(groups.kind == END, segments.low, dtype=np.int64)
    open_early = ~segments.ends & (segments.high != groups.past[segments.group])
    odd = (groups.kind[segments.low] != START) | open_early | (ends > segments.ends)
    return np.asarray(segments.group[odd])


def _over_limits(groups: Grouping) -> Int:
    segments, settings = groups.segments, groups.settings
    n_bytes = np.add.reduceat(groups.store.sizes()[groups.order], segments.low)
    return segments.group[
        (segments.high - segments.low > settings.max_events) | (n_bytes > settings.max_bytes)
    ]


def _with_repeated_ids(groups: Grouping) -> Int:
    """An event id twice in a segment, which is all that a session of a clean group sees."""
    assert groups.store.event_id is not None
    segments = groups.segments
    ids = groups.store.event_id.take(pa.array(groups.order)).dictionary_encode()
    distinct = len(ids.dictionary)
    if distinct == len(ids):
        return segments.group[:0]
    segment = np.repeat(np.arange(len(segments.low)), segments.high - segments.low)
    pairs = np.sort(segment * distinct + int64(ids.indices))
    return np.asarray(segments.group[pairs[1:][pairs[1:] == pairs[:-1]] // distinct])


def _with_own_gaps(groups: Grouping) -> Int:
    """An event more than the timeout later than the one before in its session, which bounds the session's latest."""
    late = groups.ts[1:] - groups.ts[:-1] > groups.settings.timeout_ms
    late[groups.segments.low[1:] - 1] = False
    return np.asarray(groups.group[1:][late])


def _with_silence(groups: Grouping) -> Int:
    """Another key's record, while the session was open, later than the event before plus timeout and grace."""
    settings = groups.settings
    open_after = np.flatnonzero(groups.kind != END)
    limit = groups.ts[open_after] + (settings.timeout_ms + settings.grace_ms)
    return groups.group[open_after[groups.silence_after(open_after).latest > limit]]
