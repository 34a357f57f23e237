"""The clock answers for any stretch of the log what looking at each record would."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.silence import NEVER, Clock

RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.integers(-50, 50)),
    max_size=70,
    unique_by=lambda item: item[:2],
)


@settings(max_examples=300, derandomize=True)
@given(RECORDS, st.data())
def test_the_clock_agrees_with_looking_at_each_record(
    records: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    columns = [np.array([record[at] for record in records], np.int64) for at in range(3)]
    clock = Clock(*columns)
    log = sorted(records)
    assert [log[place] for place in clock.position.tolist()] == records
    for source in range(3):
        own = [place for place, record in enumerate(log) if record[0] == source]
        begin, end = int(clock.begin(np.array([source]))[0]), int(clock.end(np.array([source]))[0])
        assert list(range(begin, end)) == own
    low = data.draw(st.integers(0, len(log)))
    high = data.draw(st.integers(low, len(log)))
    times = [ts for _, _, ts in log[low:high]]
    latest = int(clock.latest(np.array([low]), np.array([high]))[0])
    assert latest == max(times, default=NEVER)
    if times:
        than = data.draw(st.integers(-60, latest - 1))
        assert clock.first_later(low, high, than) == next(at for _, at, ts in log[low:high] if ts > than)
