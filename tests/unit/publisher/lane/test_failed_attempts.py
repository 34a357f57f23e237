"""A lane that fails in whatever way holds nothing of what it had read, though its process hardly looks for cycles."""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import NoReturn

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.delivery.transaction_size import TransactionSize
from publisher.lane.transaction_pace import TransactionPace
from publisher.lane.worker import Worker
from publisher.monitoring.health import LaneHealth
from publisher.protocol.stop_reasons import HandoverStuckError, StartOverError, StoppedError, StopReason
from tests.support.processes.failing_lane import Impatient

ATTEMPTS = 200


class Rows:
    """What an attempt had read."""


class FailingLane:
    """Its failures are held by their own frames, as one that a Future gave back is."""

    lane = 0
    position = None
    sender = SimpleNamespace(producer=None, size=TransactionSize(100, 1_000, 60.0))

    def __init__(self, failure: Callable[[], Exception], leave: threading.Event) -> None:
        self.held: list[weakref.ref[Rows]] = []
        self._failure = failure
        self._leave = leave

    def open(self) -> bool:
        return True

    def run_once(self) -> NoReturn:
        rows = Rows()
        self.held.append(weakref.ref(rows))
        if len(self.held) >= ATTEMPTS:
            self._leave.set()
        answer: Future[Rows] = Future()
        answer.set_exception(self._failure())
        answer.result()
        raise AssertionError

    def confirm(self) -> None: ...

    def show_stopped(self, *_: object) -> None: ...

    def discard(self) -> None: ...

    def close(self, **_: object) -> None: ...


@pytest.mark.parametrize(
    "failure",
    [
        lambda: KafkaException(KafkaError(KafkaError._TIMED_OUT)),
        lambda: psycopg.OperationalError("away"),
        lambda: StoppedError(StopReason.OUTPUT_TOPIC_MISSING, "no topic", retry=True),
        lambda: ZeroDivisionError("a defect"),
        StartOverError,
        lambda: HandoverStuckError("another lane hangs"),
    ],
    ids=["Kafka", "Postgres", "stopped", "a defect", "another producer", "no turn"],
)
def test_two_hundred_failed_attempts_hold_nothing(
    failure: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It comes once a second only.
    monkeypatch.setattr("publisher.lane.worker.collect_after_failure", lambda: None)
    leave = Impatient()
    lane = FailingLane(failure, leave)
    gc.disable()
    try:
        # A lane that gets no turn is given back, and taken again.
        while not leave.is_set():
            worker = Worker(
                lane,  # type: ignore[arg-type]
                LaneHealth(1, 0),
                wake=threading.Event(),
                look=Impatient(),
                pace=TransactionPace(1_000),
                poll_s=0.01,
            )
            worker._leave = leave
            worker.run()
        assert len(lane.held) == ATTEMPTS
        assert [each for each in lane.held if each() is not None] == []
    finally:
        gc.enable()
