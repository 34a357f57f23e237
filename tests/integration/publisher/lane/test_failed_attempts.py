"""A lane that waits for a missing topic holds nothing of the rows that it read before, though its process hardly looks for cycles."""

import gc
import threading

from db.connection import connect
from publisher.assignment import membership
from publisher.lane.lane import Lane
from publisher.lane.reader import LaneChunk
from publisher.lane.transaction_pace import TransactionPace
from publisher.lane.worker import Worker
from publisher.monitoring.health import LaneHealth
from publisher.protocol.cursor import Epoch
from publisher.relay import Relay
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session

ATTEMPTS = 20
ROW_BYTES = 200_000


class Impatient(threading.Event):
    """Lets nobody wait, and is set after so many waits."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.set()
        return self.is_set()


def test_failed_attempts_hold_no_row(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(
        {
            f"key-{number}": [Session([b"x" * ROW_BYTES], end=number + 1, topics=["nowhere"])]
            for number in range(20)
        }
    )
    epoch, health = Epoch(1, 1, outbox.lanes), LaneHealth(1, 0)
    with connect(settings.postgres, "test", autocommit=True) as connection:
        context = Relay(settings, threading.Event())._bind(connection)
        membership.add_lanes(connection, epoch)
    worker = Worker(
        Lane(context, epoch, 0),
        health,
        wake=threading.Event(),
        look=threading.Event(),
        pace=TransactionPace(1_000),
        poll_s=0.01,
    )
    worker._leave = Impatient(ATTEMPTS)
    gc.collect()
    gc.disable()
    try:
        worker.run()
        held = [each for each in gc.get_objects() if isinstance(each, LaneChunk)]
    finally:
        gc.enable()
    assert "nowhere" in health.seen(0.0).reason
    assert held == []
