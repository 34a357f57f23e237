"""The clock answers for any stretch of the log what looking at each record would."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.clock import NEVER, Clock

RECORDS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(-50, 50)), max_size=70, unique_by=lambda item: item[0]
).map(sorted)


@settings(max_examples=300, derandomize=True)
@given(RECORDS, st.data())
def test_the_clock_agrees_with_looking_at_each_record(
    log: list[tuple[int, int]], data: st.DataObject
) -> None:
    offset, ts = (np.array([record[at] for record in log], np.int64) for at in range(2))
    clock = Clock(offset, ts)
    assert len(clock) == len(log)
    bounds = st.lists(st.integers(0, len(log)), min_size=2, max_size=2).map(sorted)
    spans = data.draw(st.lists(bounds, min_size=1, max_size=5))
    found = clock.latest(*(np.array(column, np.int64) for column in zip(*spans, strict=True)))
    for (low, high), latest in zip(spans, found.tolist(), strict=True):
        assert latest == max((ms for _, ms in log[low:high]), default=NEVER)
        if low < high:
            than = data.draw(st.integers(-60, latest - 1))
            expected = next(at for at, ms in log[low:high] if ms > than)
            assert clock.first_later(low, high, than) == expected
