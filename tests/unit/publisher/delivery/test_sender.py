"""What a lane looks at before it records, and before it believes a connection."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from contract.progress import Totals
from publisher.delivery.handover import HandoverTurns
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.delivery.sender import Sender, StepOutcome
from publisher.delivery.transaction_size import TransactionSize
from publisher.kafka.progress_reader import Newest
from publisher.kafka.written_ends import WrittenEnds
from publisher.monitoring import metrics
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import RowKey
from publisher.protocol.refusals import RecordRefusedError, Refusal
from publisher.protocol.stop_reasons import StartOverError, StoppedError, StopReason
from tests.support.lanes import RECORD, opened

LEASE: Any = SimpleNamespace(parameters={"epoch": 1, "lane": 0, "lease_token": 1, "lease_s": 3.0})


class Counting:
    """A connection to a database that knows so many parked rows up to the cursor."""

    def __init__(self, parked: int) -> None:
        self._parked = parked
        self.recorded = False

    def execute(self, sql: Any, _parameters: object) -> Any:
        text = sql if isinstance(sql, str) else str(sql)
        self.recorded = self.recorded or "INSERT INTO outbox.delivery" in text
        return SimpleNamespace(rowcount=1, fetchone=lambda: (self._parked,))


@pytest.mark.parametrize(("known", "records"), [(2, True), (3, True), (1, False)])
def test_a_resume_that_postgres_does_not_know_stands_only_with_the_rows_that_it_left_parked(
    known: int, records: bool
) -> None:
    resumed = replace(RECORD, resumed="--from kafka", total=Totals(10, 200, 2))
    connection = Counting(known)
    lane = opened(StepOutcome.IDLE, breaks=False)
    stops = pytest.raises(StoppedError, match=r"database_restored: .*2 parked rows.*has 1 of them")
    with nullcontext() if records else stops:
        lane.hold(LEASE)
        lane.record_missing(cast("psycopg.Connection[Any]", connection), Newest(resumed, {}))
    assert connection.recorded is records


class Elsewhere:
    """A connection that the lane gets after a loss."""

    closed = False

    def execute(self, *_arguments: object) -> Any:
        raise AssertionError("used before it is known to lead to the same outbox")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("use", ["confirm", "show_stopped", "park"])
def test_a_lane_whose_new_connection_leads_elsewhere_writes_nothing_there(
    monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    made: list[Elsewhere] = []

    def connect(*_arguments: object, **_named: object) -> Elsewhere:
        made.append(Elsewhere())
        return made[-1]

    def check(*_arguments: object) -> None:
        raise StoppedError(StopReason.OTHER_SERVER, "another one")

    monkeypatch.setattr("publisher.delivery.outbox_connection.connect", connect)
    monkeypatch.setattr("publisher.delivery.outbox_connection.check_unchanged", check)
    lane = opened(StepOutcome.DELIVERED, breaks=False)
    lane.hold(Lease(1, 0, 1, 3.0))
    refused = RecordRefusedError(
        KafkaError(KafkaError.INVALID_RECORD), {RowKey(1, "k"): Refusal("invalid", "x")}, 1
    )
    lane.sender.fails = refused
    with pytest.raises(StartOverError):
        lane.run_once()  # from here on record by record
    acts: dict[str, Callable[[], None]] = {
        "confirm": lane.confirm,
        "show_stopped": lambda: lane.show_stopped("why", StopReason.RECORD_REFUSED),
        "park": lambda: cast(None, lane.run_once()),
    }
    # Each time anew: what was refused once is not taken for known.
    for _ in range(2):
        with pytest.raises(LeaseLostError, match="leads elsewhere: other_postgres_server: another one"):
            acts[use]()
    assert [connection.closed for connection in made] == [True, True]
    with pytest.raises(StoppedError):
        OutboxConnection(lane.context, "name").open()


@pytest.mark.guarantee(54)
@pytest.mark.parametrize(("fails", "ends"), [(True, ["id"]), (False, [])])
def test_a_sender_that_is_ended_leaves_no_failed_transaction_open(
    monkeypatch: pytest.MonkeyPatch, fails: bool, ends: list[str]
) -> None:
    ended: list[str] = []
    producer = SimpleNamespace(
        poll=lambda _seconds: 0, abort_transaction=lambda _seconds: None, purge=lambda **_: None
    )
    monkeypatch.setattr("publisher.delivery.sender.fencing_producer", lambda *_: producer)
    monkeypatch.setattr("publisher.delivery.sender.end_transaction", lambda *found: ended.append(found[2]))
    sender = opened(StepOutcome.DELIVERED, breaks=False).sender
    for again in range(2):
        sender.fence("id", 1)
        sender.fails = KafkaException(KafkaError(KafkaError._TIMED_OUT)) if fails else None
        with pytest.raises(KafkaException) if fails else nullcontext():
            sender.send([], [])
        if again == 0:
            sender.discard()  # as before it is fenced again
    sender.end("id")
    sender.end("id")
    assert (ended, sender.producer) == (ends, None)


class Taking:
    """A producer that Kafka takes everything from; keeps what was sent and how often it was committed."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.commits = 0

    def poll(self, _seconds: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, *record: Any) -> None:
        self.sent.append(record)

    def flush(self, _seconds: float) -> int:
        return 0

    def commit_transaction(self, _seconds: float) -> None:
        self.commits += 1


class Broken:
    """A counter of Prometheus that cannot count."""

    def __getattr__(self, _name: str) -> Any:
        raise OSError("no space left on device")


def test_a_lane_delivers_though_no_counter_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for counter in ("_TRANSACTIONS", "_TRANSACTION_SECONDS", "_DELIVERED_EVENTS", "_DELIVERED_SESSIONS"):
        monkeypatch.setattr(metrics, counter, Broken())
    lane = opened(StepOutcome.DELIVERED, breaks=False)
    context: Any = lane.context
    context.turns, context.topics.written = HandoverTurns(), WrittenEnds()
    producer: Any = Taking()
    sender: Any = Sender(context, Outgoing(), "lane", TransactionSize(1_000, 1 << 20, 60.0), 60_000)
    lane.sender, sender.producer = sender, producer
    monkeypatch.setattr(lane._chunks, "ask", lambda *_: None)
    assert lane.run_once() is StepOutcome.DELIVERED
    assert [record[0] for record in producer.sent] == ["progress"]
    assert producer.commits == 1
