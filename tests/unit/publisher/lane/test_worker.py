"""A worker never ends in silence, stands still only while the lane is its own, and continues once the reason is gone."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from psycopg import errors
from structlog.testing import capture_logs

from publisher.delivery.sender import StepOutcome
from publisher.delivery.transaction_size import TransactionSize
from publisher.lane.transaction_pace import TransactionPace
from publisher.lane.worker import Worker
from publisher.monitoring.health import LaneHealth
from publisher.outbox.lease import LeaseLostError
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.lifecycle.backoff import Backoff


class FakeLane:
    """Every `open` finds the same reason to stop, until `mended`; the first `lost` confirmations find the lane taken over."""

    lane = 0
    position = None
    sender = SimpleNamespace(producer=None, size=TransactionSize(100, 1_000, 60.0))

    def __init__(self, *, lost: int = 0, broken: Exception | None = None, in_step: bool = False) -> None:
        self.opened = 0
        self.mended = False
        self.elsewhere = False
        self.shown: list[tuple[str | None, StopReason | None]] = []
        self.kept_lease: bool | None = None
        self._lost = lost
        self._broken = broken
        self._in_step = in_step
        self.fails_with: Exception = StoppedError(StopReason.KAFKA_LOST, "gone")

    def open(self) -> bool:
        self.opened += 1
        if not self._in_step:
            self._fail()
        return not self.elsewhere

    def run_once(self) -> StepOutcome:
        self._fail()
        return StepOutcome.DONE

    def _fail(self) -> None:
        if not self.mended:
            raise self.fails_with

    def confirm(self) -> None:
        if self.opened <= self._lost:
            raise LeaseLostError("taken over")

    def show_stopped(self, explanation: str, reason: StopReason | None = None) -> None:
        self.shown.append((explanation, reason))

    def show_running(self, explanation: str | None) -> None:
        self.shown.append((explanation, None))

    def discard(self) -> None:
        if self._broken is not None:
            raise self._broken

    def close(self, *, keep_lease: bool = False) -> None:
        self.kept_lease = keep_lease


STOPPED = ("kafka_lost: gone", StopReason.KAFKA_LOST)
RUNNING = (None, None)


def worker_of(lane: FakeLane, look: threading.Event, stop_s: float) -> Worker:
    backoff = Backoff(least_s=stop_s, most_s=stop_s)
    return Worker(
        lane,  # type: ignore[arg-type]
        LaneHealth(1, 0),
        wake=threading.Event(),
        look=look,
        pace=TransactionPace(1_000),
        poll_s=0.01,
        stop_backoff=backoff,
    )


def work(lane: FakeLane, then: Callable[[Worker, threading.Event], None], stop_s: float = 600.0) -> Worker:
    """Run a worker until it ends; `then` is called once it stands still."""
    look = threading.Event()
    worker = worker_of(lane, look, stop_s)
    thread = threading.Thread(target=worker.run)
    thread.start()
    pause = threading.Event()
    while worker.stopped is None and thread.is_alive():
        pause.wait(0.005)
    then(worker, look)
    thread.join(90)
    assert not thread.is_alive()
    return worker


def test_a_stop_that_a_later_holder_may_have_caused_is_looked_at_again() -> None:
    lane = FakeLane(lost=1)
    worker = work(lane, lambda worker, _: worker.leave())
    assert lane.opened == 2
    assert lane.shown == [STOPPED]
    assert worker.stopped is not None
    assert lane.kept_lease is False


def test_a_lane_that_stands_still_continues_as_soon_as_it_was_resumed() -> None:
    lane = FakeLane()

    def resume(_: Worker, look: threading.Event) -> None:
        lane.mended = True
        look.set()

    worker = work(lane, resume)
    assert worker.stopped is None
    assert worker.done
    assert lane.shown == [STOPPED, RUNNING]
    assert lane.kept_lease is True


def test_a_lane_that_stands_still_looks_again_by_itself() -> None:
    lane = FakeLane()
    worker = work(lane, lambda *_: setattr(lane, "mended", True), stop_s=0.01)
    assert worker.done


def test_a_reason_that_only_a_step_finds_does_not_come_and_go() -> None:
    lane = FakeLane(in_step=True)

    def after_some_looks(worker: Worker, _: threading.Event) -> None:
        pause = threading.Event()
        while lane.opened < 4:
            assert worker.stopped is not None
            pause.wait(0.001)
        worker.leave()

    work(lane, after_some_looks, stop_s=0.01)
    assert set(lane.shown) == {STOPPED}


@pytest.mark.parametrize(
    "later",
    [KafkaException(KafkaError(KafkaError._TRANSPORT, "down")), StoppedError(StopReason.NOT_AUTHORISED, "no", retry=True)],
    ids=["a server is away", "a stop that passes"],
)  # fmt: skip
def test_a_stop_that_is_mended_no_longer_counts_although_the_lane_does_not_run_yet(later: Exception) -> None:
    """Every lane of a process that is stopped ends it, with exit code 5."""
    lane = FakeLane()

    def mended(worker: Worker, look: threading.Event) -> None:
        lane.fails_with = later
        look.set()
        pause = threading.Event()
        while lane.opened < 2 or worker.stopped is not None:
            pause.wait(0.001)
        worker.leave()

    assert work(lane, mended).stopped is None


def test_a_lane_that_another_process_holds_ends_the_worker() -> None:
    lane = FakeLane(in_step=True)
    lane.elsewhere = True
    worker = work(lane, lambda *_: None)
    assert (worker.done, worker.stopped, worker.bug, lane.opened) == (False, None, None, 1)


def test_an_error_while_a_failure_is_handled_is_kept_for_the_process_to_raise() -> None:
    broken = RuntimeError("discard failed")
    worker = work(FakeLane(broken=broken), lambda *_: None)
    assert worker.bug is broken
    assert worker.stopped is None


class Odd(FakeLane):
    """The first steps raise what nothing explains."""

    def __init__(self, failures: int) -> None:
        super().__init__(in_step=True)
        self._left = failures

    def _fail(self) -> None:
        if self._left:
            self._left -= 1
            b"\xffalice".decode()


def test_an_exception_that_nothing_explains_holds_the_lane_and_does_not_end_the_process() -> None:
    lane = Odd(3)
    worker = worker_of(lane, threading.Event(), 0.001)
    with capture_logs() as logged:
        worker.run()
    assert (worker.bug, worker.stopped, worker.done) == (None, None, True)
    assert lane.opened == 4
    (reason, why), *_ = lane.shown
    assert why is StopReason.UNEXPECTED
    assert "UnicodeDecodeError at test_worker.py, line " in str(reason)
    assert "alice" not in str(reason)
    assert any(line["event"] == "lane_unexpected" and line["exc_info"] for line in logged)
    assert lane.shown[-1] == RUNNING


class Denied(FakeLane):
    """Kafka refuses it once."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def _fail(self) -> None:
        if self.opened == 1:
            raise KafkaException(KafkaError(self._code, "refused"))


@pytest.mark.parametrize(
    ("code", "is_login"),
    [
        (KafkaError._AUTHENTICATION, True),
        (KafkaError.SASL_AUTHENTICATION_FAILED, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError._TRANSPORT, False),
    ],
)
def test_a_login_that_kafka_refuses_is_told_from_a_right_that_is_missing(code: int, is_login: bool) -> None:
    lane = Denied(code)
    worker = worker_of(lane, threading.Event(), 0.001)
    thread = threading.Thread(target=worker.run)
    thread.start()
    pause = threading.Event()
    while not (seen := worker._health.snapshot(0.0)).reason:
        pause.wait(0.001)
    worker.leave()
    thread.join(90)
    assert seen.login_refused is is_login


class Refused(FakeLane):
    """Postgres refuses a row a few times."""

    def _fail(self) -> None:
        if self.opened < 6:
            raise errors.UniqueViolation(
                'duplicate key value violates "parked_pkey"\nDETAIL:  Key (session_key, batch_id)=(alice, 1) already exists.'
            )
        self.elsewhere = True


def test_what_postgres_quotes_of_a_row_is_neither_shown_nor_logged() -> None:
    lane = Refused()
    worker = worker_of(lane, threading.Event(), 0.001)
    with capture_logs() as logged:
        worker.run()
    assert "parked_pkey" in str(logged)
    assert "parked_pkey" in str(lane.shown)
    assert "alice" not in str((logged, lane.shown))
