"""A worker never ends in silence, and stops for good only while the lane is its own."""

import threading

from publisher.checks import LaneStoppedError, Why
from publisher.lease import LeaseLostError
from publisher.open_lane import Outcome
from publisher.worker import Worker


class FakeLane:
    """Every `open` finds the same reason to stop; the first confirmation finds the lane taken over."""

    lane = 0
    position = None

    def __init__(self, *, lost: int = 0, broken: Exception | None = None) -> None:
        self.opened = 0
        self.shown: list[str] = []
        self._lost = lost
        self._broken = broken

    def open(self) -> bool:
        self.opened += 1
        raise LaneStoppedError(Why.KAFKA_LOST, "gone")

    def run_once(self) -> Outcome:
        raise AssertionError("it never opens")

    def confirm(self) -> None:
        if self.opened <= self._lost:
            raise LeaseLostError("taken over")

    def stopped(self, reason: str) -> None:
        self.shown.append(reason)

    def discard(self) -> None:
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        pass


def work(lane: FakeLane) -> Worker:
    worker = Worker(lane, threading.Event(), threading.Event(), 0.01)  # type: ignore[arg-type]
    worker.run()
    return worker


def test_a_stop_that_a_later_holder_may_have_caused_is_looked_at_again() -> None:
    lane = FakeLane(lost=1)
    worker = work(lane)
    assert lane.opened == 2
    assert lane.shown == ["kafka_lost: gone"]
    assert worker.stopped is not None


def test_an_error_while_a_failure_is_handled_is_kept_for_the_process_to_raise() -> None:
    broken = RuntimeError("discard failed")
    worker = work(FakeLane(broken=broken))
    assert worker.bug is broken
    assert worker.stopped is None
