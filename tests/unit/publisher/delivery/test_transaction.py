"""A transaction waits for room in the client's queue, and blames a row only for what is its own."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.delivery.handover import HandoverTurns
from publisher.delivery.transaction import OffsetTally, ProgressRecord, Transaction
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.refusals import RecordRefusedError, no_row_s_fault
from service.kafka.renewable_client import Complaints
from service.observability.loops import LifeSign
from tests.support.lanes import PLAIN, RECORD


class FakeProducer:
    """Its queue is full at every other produce; `refuse` is what its flush fails with for every record."""

    def __init__(self, refuse: KafkaError | None = None) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.commits_within_s = 0.0
        self._refuse = refuse
        self._full = False
        self._open = False

    def begin_transaction(self) -> None:
        if self._open:
            raise KafkaException(self._refuse or KafkaError(KafkaError._STATE))
        self._open = True

    def produce(self, *record: Any) -> None:
        self._full = not self._full
        if self._full:
            raise BufferError
        self.sent.append(record)

    def poll(self, _seconds: float) -> None:
        pass

    def purge(self) -> None:
        pass

    def flush(self, _seconds: float) -> int:
        if self._refuse is not None:
            for record in self.sent:
                if len(record) > 4 and record[4] is not None:
                    record[4](self._refuse, None)
        return 0

    def commit_transaction(self, seconds: float) -> None:
        self.commits_within_s = seconds
        if self._refuse is not None:
            raise KafkaException(self._refuse)


def run(
    producer: FakeProducer,
    *,
    timestamps_ms: list[int | None] | None,
    one_by_one: bool,
    turns: HandoverTurns | None = None,
) -> None:
    row = PLAIN._replace(timestamps_ms=timestamps_ms)
    known: Any = producer
    transaction = Transaction(
        known, Outgoing(), threading.Event(), turns or HandoverTurns(), one_by_one=one_by_one
    )
    transaction.run([row], [ProgressRecord("progress", RECORD.encode(), RECORD.key(), RECORD.lane)])


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_full_queue_delays_every_record_and_the_progress_record_too(one_by_one: bool) -> None:
    producer = FakeProducer()
    run(producer, timestamps_ms=None, one_by_one=one_by_one)
    assert [record[0] for record in producer.sent] == ["out", "out", "out", "progress"]
    assert producer.sent[-1][1] == RECORD.encode()


@pytest.mark.parametrize(
    ("timestamps_ms", "blamed"), [(None, False), ([None, 5, None], True)], ids=["the clock's", "the row's"]
)
def test_a_refused_timestamp_is_the_row_s_fault_only_where_the_row_gives_it(
    timestamps_ms: list[int | None] | None, blamed: bool
) -> None:
    producer = FakeProducer(KafkaError(KafkaError.INVALID_TIMESTAMP))
    with pytest.raises(RecordRefusedError) as raised:
        run(producer, timestamps_ms=timestamps_ms, one_by_one=True)
    assert list(raised.value.rows) == ([PLAIN.row_key] if blamed else [])
    assert raised.value.code == KafkaError.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (KafkaError.INVALID_TIMESTAMP, "clock of this host"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "max.message.bytes of topic progress"),
        (KafkaError.INVALID_RECORD, "settings of topic progress"),
    ],
)
def test_a_refusal_that_is_no_row_s_fault_names_its_cause(code: int, named: str) -> None:
    assert named in no_row_s_fault(code, "text", "progress")


def test_a_failed_report_without_a_watched_row_blames_nobody() -> None:
    tally = OffsetTally()
    tally.report(KafkaError(KafkaError.INVALID_RECORD), None)  # type: ignore[arg-type]
    assert tally.refused == {}


class LateTurns(HandoverTurns):
    """The turn comes after 1,000 s, which no clock has seen."""

    def take(self, lane: str, alive: LifeSign) -> float:
        return super().take(lane, alive) + 1_000.0


def test_the_wait_for_a_turn_is_no_part_of_a_transactions_time() -> None:
    producer: Any = FakeProducer()
    transaction = Transaction(producer, Outgoing(), threading.Event(), LateTurns())
    transaction.run([PLAIN], [ProgressRecord("progress", RECORD.encode(), RECORD.key(), RECORD.lane)])
    assert transaction.took_s < 0


def test_a_commit_waits_no_longer_than_the_transaction_lives() -> None:
    """With librdkafka 2.16 a request to end it can stay unanswered in a connection that logs in again, without a timeout."""
    producer = FakeProducer()
    known: Any = producer
    transaction = Transaction(known, Outgoing(), threading.Event(), HandoverTurns(), timeout_s=30)
    transaction.run([PLAIN], [ProgressRecord("progress", RECORD.encode(), RECORD.key(), RECORD.lane)])
    assert 1 <= producer.commits_within_s <= 30


class Unheard(FakeProducer):
    """Nothing that it sends is confirmed; librdkafka says once that the login was refused."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__()
        self._complaints = complaints

    def flush(self, _seconds: float) -> int:
        self._complaints(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
        return 1


def test_a_transaction_ends_once_the_login_is_refused() -> None:
    complaints = Complaints()
    known: Any = Unheard(complaints)
    transaction = Transaction(known, Outgoing(), threading.Event(), HandoverTurns(), complaints=complaints)
    with pytest.raises(KafkaException, match="wrong password"):
        transaction.run([PLAIN], [ProgressRecord("progress", RECORD.encode(), RECORD.key(), RECORD.lane)])


class Roomy(FakeProducer):
    """Its queue is never full."""

    def produce(self, *record: Any) -> None:
        self.sent.append(record)


def test_a_turn_moves_within_a_row_of_many_outputs() -> None:
    outputs = 5_000
    row = PLAIN._replace(
        session_outputs=[outputs], topics=["out"] * outputs, values=[b"v"] * outputs, keys=[None] * outputs
    )
    turns, producer = HandoverTurns(), Roomy()
    sent_at_a_move = [0]

    def alive(within_s: float | None = None, doing: str = "") -> None:
        sent_at_a_move.append(len(producer.sent))

    known: Any = producer
    Transaction(known, Outgoing(), threading.Event(), turns, alive=alive).run(
        [row], [ProgressRecord("progress", RECORD.encode(), RECORD.key(), RECORD.lane)]
    )
    assert len(producer.sent) == outputs + 1
    assert max(after - before for before, after in pairwise(sent_at_a_move)) < 1_000


class Crowded(FakeProducer):
    """Notes who is handing over rows at the same time; `is_full` until the other one is through."""

    def __init__(self, handing: set["Crowded"], is_full: Callable[[], bool]) -> None:
        super().__init__()
        self.done = False
        self.met: list[int] = []
        self._handing, self._is_full = handing, is_full

    def produce(self, *record: Any) -> None:
        if self._is_full():
            raise BufferError
        self._handing.add(self)
        time.sleep(0.001)  # another thread runs meanwhile, if it may
        self.met.append(len(self._handing))
        self._handing.discard(self)
        self.sent.append(record)

    def commit_transaction(self, _seconds: float) -> None:
        self.done = True


@pytest.mark.parametrize("waits_for_room", [False, True])
def test_lanes_take_turns_in_handing_over_and_one_that_waits_for_room_lets_the_other_go_on(
    waits_for_room: bool,
) -> None:
    handing: set[Crowded] = set()
    other = Crowded(handing, lambda: False)
    one = Crowded(handing, lambda: waits_for_room and not other.done)
    options = {"timestamps_ms": None, "one_by_one": False, "turns": HandoverTurns()}
    threads = [
        threading.Thread(target=run, args=(each,), kwargs=options, daemon=True) for each in (one, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (one.done, other.done) == (True, True)
    assert set(one.met + other.met) == {1}
    assert len(one.sent) == len(other.sent) == len(PLAIN.values) + 1
