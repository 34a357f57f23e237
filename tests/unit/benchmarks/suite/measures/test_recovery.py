"""After a kill, only sessions that ended later count: the first of them, and all that ended in the next second."""

import math

import pytest

from benchmarks.suite.load.latencies import SentEnd
from benchmarks.suite.measures.faults import recovery


def ended(*moments: float) -> dict[bytes, SentEnd]:
    return {b"%d" % number: SentEnd(moment, moment) for number, moment in enumerate(moments)}


def test_the_first_and_the_last_of_those_that_ended_soon_after() -> None:
    ends = ended(99.9, 100.2, 100.9, 105.0)
    received = {b"0": 101.0, b"1": 104.0, b"2": 109.0, b"3": 120.0}
    assert recovery(100.0, ends, received) == pytest.approx({"seconds": 4.0, "all_s": 9.0})


def test_one_that_never_came_is_never() -> None:
    found = recovery(100.0, ended(100.2, 100.9), {b"0": 104.0})
    assert found["seconds"] == pytest.approx(4.0)
    assert math.isinf(found["all_s"])
