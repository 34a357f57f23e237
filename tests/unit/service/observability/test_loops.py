"""A loop counts as hung only when it is late beyond what it said itself; a thread that died counts, too."""

import pytest

from service.observability.loops import Loops


class Clock:
    """A monotonic clock that stands until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_process_without_loops_is_healthy() -> None:
    assert Loops(10).verdict().as_json("healthy") == {"healthy": True, "reasons": [], "loops": {}}


@pytest.mark.guarantee(131)
def test_a_loop_is_late_only_after_its_own_time_and_the_grace() -> None:
    clock = Clock()
    loops = Loops(10, clock)
    with loops.loop("lane 1/0", 5) as loop:
        clock.now = 115.0
        assert loops.verdict().holds
        clock.now = 115.1
        assert loops.verdict().reasons == ["lane 1/0 has not turned for 15.1 s, allowed are 15.0 s"]
        loop.turn()
        assert loops.verdict().holds


def test_a_loop_that_says_how_long_it_waits_may_wait_so_long_once() -> None:
    clock = Clock()
    loops = Loops(10, clock)
    with loops.loop("attempts", 5) as loop:
        loop.turn(3_600)
        clock.now += 3_610
        assert loops.verdict().holds
        loop.turn()
        clock.now += 15.1
        assert not loops.verdict().holds


def test_a_loop_that_ends_is_forgotten_and_one_that_was_ended_by_an_exception_is_not() -> None:
    loops = Loops(10)
    with loops.loop("heartbeat", 5):
        assert list(loops.verdict().details["loops"]) == ["heartbeat"]
    assert loops.verdict().details == {"loops": {}}
    with pytest.raises(ZeroDivisionError), loops.loop("heartbeat", 5):
        raise ZeroDivisionError
    assert loops.verdict().reasons == ["heartbeat was ended by ZeroDivisionError"]
    with loops.loop("heartbeat", 5):
        assert loops.verdict().holds


def test_a_loop_that_ends_late_does_not_forget_the_one_that_follows_it() -> None:
    loops = Loops(10)
    first, second = loops.loop("lane 1/0", 5), loops.loop("lane 1/0", 5)
    with first:
        second.__enter__()
    assert list(loops.verdict().details["loops"]) == ["lane 1/0"]
