"""A lane that fails again and again without waiting, and what its process holds then. Cycles are not looked for meanwhile, as in a
publisher that has little to do."""

import gc
import threading
from typing import Any

from db.connection import connect
from publisher.assignment import membership
from publisher.delivery.context import Context
from publisher.lane.lane import Lane
from publisher.lane.transaction_pace import TransactionPace
from publisher.lane.worker import Worker
from publisher.monitoring.health import LaneHealth
from publisher.protocol.cursor import Epoch
from publisher.relay import Relay
from service.settings import Settings


class _Impatient(threading.Event):
    """Lets nobody wait, and is set after so many waits."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.set()
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
        self._worker = Worker(
            Lane(context, epoch, 0),
            self._health,
            wake=threading.Event(),
            look=threading.Event(),
            pace=TransactionPace(1_000),
            poll_s=0.01,
        )

    @property
    def reason(self) -> str:
        """Why it failed last."""
        return self._health.seen(0.0).reason

    def held_after(self, attempts: int, *kinds: type) -> list[Any]:
        """Let it fail so often; return the objects of those kinds that there are then and were not before."""
        gc.collect()
        before = {id(each) for each in _those(kinds)}
        self._worker._leave = _Impatient(attempts)
        gc.disable()
        try:
            self._worker.run()
            return [each for each in _those(kinds) if id(each) not in before]
        finally:
            gc.enable()


def _those(kinds: tuple[type, ...]) -> list[Any]:
    return [each for each in gc.get_objects() if isinstance(each, kinds)]
