"""A session has come when its last output has, whatever else is read; the speed follows from when those came."""

import pytest

from benchmarks.suite.load.watcher import Arrivals
from benchmarks.suite.measures.throughput import speeds
from benchmarks.transforms import OUTPUTS


def outputs(key: bytes, *numbers: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(key, b"%013d %02d xxx" % (1, number)) for number in numbers or range(OUTPUTS)]


def test_a_session_comes_with_its_last_output_and_only_once() -> None:
    arrivals = Arrivals()
    arrivals.note(outputs(b"a", *range(OUTPUTS - 1)), 1.0)
    assert arrivals.received == {}
    arrivals.note(outputs(b"a", OUTPUTS - 1) + outputs(b"b"), 2.0)
    arrivals.note(outputs(b"b", OUTPUTS - 1), 3.0)
    assert arrivals.received == {b"a": 2.0, b"b": 2.0}
    assert (arrivals.again, arrivals.records) == (1, 2 * OUTPUTS + 1)
    assert arrivals.progress == [(2.0, 2)]


def test_records_without_key_or_value_are_no_outputs() -> None:
    arrivals = Arrivals()
    arrivals.note([(None, b"%013d %02d " % (1, OUTPUTS - 1)), (b"a", None), (b"a", b"")], 1.0)
    assert arrivals.received == {}


def grown(*by_second: int) -> Arrivals:
    """So many sessions by each second from 0 on."""
    arrivals = Arrivals()
    for second, count in enumerate(by_second):
        new = range(len(arrivals.received), count)
        arrivals.note([one for number in new for one in outputs(b"%d" % number, OUTPUTS - 1)], float(second))
    return arrivals


def test_warm_is_from_a_third_to_all_and_whole_from_the_start_of_the_processes() -> None:
    found = speeds(grown(0, 0, 10, 300, 600, 900), 900, started_s=-1.0)
    assert found == {"warm": 300.0, "whole": 150.0, "events_s": 30_600.0}


def test_a_slow_start_does_not_change_what_is_warm() -> None:
    slow, quick = grown(0, 0, 0, 0, 300, 600, 900), grown(0, 300, 600, 900)
    assert speeds(slow, 900, 0.0)["warm"] == speeds(quick, 900, 0.0)["warm"]


def test_sessions_that_came_with_the_third_are_not_counted_as_warm() -> None:
    assert speeds(grown(0, 500, 700, 900), 900, 0.0)["warm"] == 200.0


def test_warm_may_end_before_all_have_come() -> None:
    found = speeds(grown(0, 300, 600, 610, 900), 900, 0.0, warm_until=600)
    assert (found["warm"], found["whole"]) == (300.0, 225.0)


def test_a_backlog_that_came_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        speeds(grown(0, 900), 900, 0.0)


def test_a_backlog_that_did_not_come_is_refused() -> None:
    with pytest.raises(ValueError, match="only 800 of 900"):
        speeds(grown(0, 400, 800), 900, 0.0)
