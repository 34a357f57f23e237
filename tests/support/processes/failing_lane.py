"""A lane that fails again and again without waiting, and what its process holds then. Cycles are not looked for meanwhile, as in a
publisher that has little to do."""

import gc
import threading
from typing import Any

import pytest

from db.connection import connect
from publisher.assignment import membership
from publisher.delivery.context import Context
from publisher.lane.lane import Lane
from publisher.lane.transaction_pace import TransactionPace
from publisher.lane.worker import Worker
from publisher.monitoring.health import LaneHealth
from publisher.protocol.epochs import Epoch
from publisher.relay import Relay
from service.settings import Settings


class Impatient(threading.Event):
    """Lets nobody wait."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def bound(settings: Settings) -> Context:
    """What the lanes of a process share, once the outbox is bound to Kafka."""
    with connect(settings.postgres, "test", autocommit=True) as connection:
        return Relay(settings, threading.Event())._bind(connection)


class FailingLane:
    """Lane 0 of the first epoch."""

    def __init__(self, context: Context, lanes: int) -> None:
        epoch, self._health = Epoch(1, 1, lanes), LaneHealth(1, 0)
        with connect(context.settings.postgres, "test", autocommit=True) as connection:
            membership.add_lanes(connection, epoch)
        self._lane = Lane(context, epoch, 0)

    @property
    def reason(self) -> str:
        """Why it failed last."""
        return self._health.snapshot(0.0).reason

    def fail(self, attempts: int) -> None:
        """Let it fail so often. One that gives the lane back takes it again."""
        leave, discard = Impatient(), self._lane.discard
        left = attempts

        def discarded() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                leave.set()
            discard()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._lane, "discard", discarded)
            while not leave.is_set():
                worker = Worker(
                    self._lane,
                    self._health,
                    wake=threading.Event(),
                    look=threading.Event(),
                    pace=TransactionPace(1_000),
                    poll_s=0.01,
                )
                worker._leave = leave
                worker.run()
        assert left <= 0

    def held_after(self, attempts: int, *kinds: type) -> list[Any]:
        """Let it fail so often; return the objects of those kinds that there are then and were not before."""
        gc.collect()
        before = {id(each) for each in _those(kinds)}
        gc.disable()
        try:
            self.fail(attempts)
            return [each for each in _those(kinds) if id(each) not in before]
        finally:
            gc.enable()


def _those(kinds: tuple[type, ...]) -> list[Any]:
    return [each for each in gc.get_objects() if isinstance(each, kinds)]
