"""Sessions start evenly, each whole and in order, with the shape of the generator's; a sender that is late says so."""

import orjson

from benchmarks.suite.load.schedule import TICK_MS, Due, Schedule, patterns
from benchmarks.suite.load.senders import Sent

PER_SECOND = 1000 // TICK_MS


def sent(rate: float, seconds: int) -> list[list[Due]]:
    """What is due in each tick; then everything to its end."""
    schedule = Schedule(rate, "t-", patterns("t-"))
    ticks = [schedule.next() for _ in range(seconds * PER_SECOND)]
    while not schedule.is_empty:
        ticks.append(schedule.next(starting=False))
    return ticks


def test_each_session_is_whole_and_in_order_under_its_own_key() -> None:
    by_key: dict[bytes, list[tuple[bytes, bool]]] = {}
    for tick in sent(40, 2):
        for key, value, is_end in tick:
            by_key.setdefault(key, []).append((value, is_end))
    assert len(by_key) == 80
    for key, events in by_key.items():
        documents = [orjson.loads(value) for value, _ in events]
        assert [one["session_key"] for one in documents] == [key.decode()] * 102
        kinds = [one["event_type"] for one in documents]
        assert kinds == ["start_event", *["entry_event"] * 100, "end_event"]
        assert [is_end for _, is_end in events] == [False] * 101 + [True]


def test_sessions_start_evenly_and_last_one_to_two_seconds() -> None:
    starts: dict[bytes, int] = {}
    lasted = []
    for number, tick in enumerate(sent(200, 2)):
        for key, _, is_end in tick:
            starts.setdefault(key, number)
            if is_end:
                lasted.append((number - starts[key]) * TICK_MS)
    begun = sorted(starts.values())
    assert begun == list(range(400))
    assert min(lasted) >= 1_000 - TICK_MS
    assert max(lasted) <= 2_000 + TICK_MS


def test_a_rate_below_one_a_tick_is_kept() -> None:
    assert sum(is_end for tick in sent(10, 3) for *_, is_end in tick) == 30


def test_events_are_as_large_as_the_generator_s() -> None:
    sizes = [len(value) for tick in sent(40, 1) for _, value, _ in tick]
    assert 145 < sum(sizes) / len(sizes) < 160


def test_how_far_behind_the_senders_were_is_that_of_the_time_asked_for() -> None:
    told = Sent(behind=[(9.9, 3.0), (10.2, 0.1), (11.5, 0.4), (20.0, 2.0)])
    assert told.behind_s(10.0, 20.0) == 0.4
    assert told.behind_s(30.0, 40.0) == 0.0
