"""The workers of this process, a thread each: started for lanes that it holds, sent away from those that it gives up."""

import threading
import time
from collections.abc import Iterable

import structlog

from publisher.condition import Condition, LaneCondition, longest_turn_s
from publisher.lane import Lane
from publisher.shared import Epoch, Shared
from publisher.wakeup import Wakeup
from publisher.worker import Worker

_log = structlog.get_logger()

LaneId = tuple[int, int]
"""(epoch, lane)"""


class _Member:
    """A worker and its thread."""

    def __init__(
        self,
        shared: Shared,
        epoch: Epoch,
        lane: int,
        wakeup: Wakeup,
        changed: threading.Event,
        condition: Condition,
    ) -> None:
        self._wakeup = wakeup
        self._changed = changed
        self._condition = condition
        self._of_lane = LaneCondition(epoch.epoch, lane)
        self._longest_turn_s = longest_turn_s(shared.settings)
        self._wake = wakeup.subscribe()
        self._look = wakeup.subscribe_publishers()
        poll_s = shared.settings.publisher.poll_ms / 1000
        lane_itself = Lane(shared, epoch, lane, self._of_lane)
        self.worker = Worker(
            lane_itself, threading.Event(), self._wake, poll_s, self._look, condition=self._of_lane
        )
        # A daemon: one that waits for a Kafka that is away must not hold the process back once its grace is over.
        self._thread = threading.Thread(target=self._run, name=f"lane-{epoch.epoch}-{lane}", daemon=True)
        condition.join(self._of_lane)
        self._thread.start()

    def _run(self) -> None:
        name = f"lane {self._of_lane.epoch}/{self._of_lane.lane}"
        try:
            with self._condition.loops.loop(name, self._longest_turn_s) as loop:
                self.worker.run(loop.turn)
        finally:
            self._condition.part(self._of_lane)
            self._wakeup.unsubscribe(self._wake)
            self._wakeup.unsubscribe(self._look)
            self._changed.set()

    def ended(self, timeout_s: float = 0.0) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


class Crew:
    """Not thread-safe: the main loop's."""

    def __init__(
        self, shared: Shared, wakeup: Wakeup, changed: threading.Event, condition: Condition
    ) -> None:
        """`changed` is set whenever a worker ends; `condition` is told of each."""
        self._shared = shared
        self._condition = condition
        self._wakeup = wakeup
        self._changed = changed
        self._members: dict[LaneId, _Member] = {}

    def lanes(self) -> set[LaneId]:
        """Return the lanes that a worker is on, those that it is about to leave too."""
        return set(self._members)

    def start(self, epoch: Epoch, lanes: Iterable[int]) -> None:
        """Put a worker on each of these lanes that has none."""
        for lane in lanes:
            if (epoch.epoch, lane) not in self._members:
                self._members[epoch.epoch, lane] = _Member(
                    self._shared, epoch, lane, self._wakeup, self._changed, self._condition
                )

    def leave(self, lanes: Iterable[LaneId]) -> None:
        """Have these lanes given up at their next transaction boundary."""
        for lane in lanes:
            if lane in self._members:
                self._members[lane].worker.leave()

    def raise_bug(self) -> None:
        """Raise what a worker could not explain, if there is any."""
        for member in self._members.values():
            if member.worker.bug is not None:
                raise member.worker.bug

    def reap(self) -> bool:
        """Forget workers that have ended; return whether any had come to its epoch's end. Raises as `raise_bug`."""
        self.raise_bug()
        done = False
        for lane, member in list(self._members.items()):
            if member.ended():
                done |= member.worker.done
                del self._members[lane]
        return done

    def stopped(self, lanes: Iterable[LaneId]) -> list[str] | None:
        """Return why each of these lanes stands still, None while one does not, or none is named."""
        reasons: list[str] = []
        for lane in sorted(lanes):
            member = self._members.get(lane)
            if member is None or member.worker.stopped is None:
                return None
            reasons.append(f"lane {lane[1]}: {member.worker.stopped}")
        return reasons or None

    def standing_still(self, epoch: Epoch) -> set[int]:
        """Return this epoch's lanes that wait for somebody to mend them: another process would fare no better with one."""
        return {
            lane
            for (number, lane), member in self._members.items()
            if number == epoch.epoch and member.worker.stopped is not None
        }

    def end(self, grace_s: float) -> list[LaneId]:
        """Have every lane given up; return those that were not within `grace_s`."""
        self.leave(self._members)
        deadline = time.monotonic() + grace_s
        for member in self._members.values():
            member.ended(max(0.0, deadline - time.monotonic()))
        abandoned = [lane for lane, member in sorted(self._members.items()) if not member.ended()]
        for epoch, lane in abandoned:
            _log.warning("lane_abandoned", epoch=epoch, lane=lane, waited_s=grace_s)
        return abandoned
