"""The clock answers for any stretch of the log what looking at each record would."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.clock import NEVER, Clock

RECORDS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(-50, 50)), max_size=70, unique_by=lambda item: item[0]
).map(sorted)


@pytest.mark.guarantee(11)
@settings(max_examples=300, derandomize=True)
@given(RECORDS, st.data())
def test_the_clock_agrees_with_looking_at_each_record(
    log: list[tuple[int, int]], data: st.DataObject
) -> None:
    offset, ts = (np.array([record[at] for record in log], np.int64) for at in range(2))
    clock = Clock(offset, ts, np.zeros(len(log), np.int64), alone=True)
    assert len(clock) == len(log)
    bounds = st.lists(st.integers(0, len(log)), min_size=2, max_size=2).map(sorted)
    spans = data.draw(st.lists(bounds, min_size=1, max_size=5))
    found = clock.latest(*(np.array(column, np.int64) for column in zip(*spans, strict=True)))
    for (low, high), latest in zip(spans, found.tolist(), strict=True):
        assert latest == max((ms for _, ms in log[low:high]), default=NEVER)
        if low < high:
            than = data.draw(st.integers(-60, latest - 1))
            expected = next(at for at, ms in log[low:high] if ms > than)
            assert clock.first_agreed(low, high, -1, than) == expected


@pytest.mark.guarantee(11)
@settings(max_examples=500, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-50, 50), st.booleans()), min_size=1, max_size=40),
    st.integers(-1, 39),
    st.integers(0, 40),
    st.integers(-60, 60),
    st.integers(0, 39),
)
def test_records_agree_where_the_newest_earlier_one_of_another_key_is_late_too(
    log: list[tuple[int, int, bool]], last: int, high: int, than: int, cut: int
) -> None:
    """`last`: a session's last event, whose key the next record has not. The records before `cut` are an earlier batch's."""
    cut, last = min(cut, len(log) - 1), min(last, len(log) - 1)
    low = max(cut, last + 1)
    high = max(low, min(high, len(log)))
    if cut <= last and low < len(log) and log[last][0] == log[low][0]:
        return
    expected = None
    for at in range(low, high):
        key, ms, by_broker = log[at]
        others = [ts for other, ts, _ in log[last + 1 : at] if other != key]
        if ms > than and (by_broker or (others and others[-1] > than)):
            expected = at
            break
    new = log[cut:]
    code, ts = (np.array([record[at] for record in new], np.int64) for at in range(2))
    earlier = ((at, log[at][1]) for at in range(cut - 1, -1, -1) if log[at][0] != new[0][0])
    clock = Clock(
        np.arange(cut, len(log)),
        ts,
        code,
        by_broker=np.array([record[2] for record in new], bool),
        before=next(earlier, (-1, NEVER)),
    )
    assert clock.first_agreed(low - cut, high - cut, last, than) == expected
    (latest,) = clock.latest_agreed(np.array([low - cut]), np.array([high - cut]), np.array([last]))
    assert (latest > than) == (expected is not None)
