"""A backlog over a slow link gets through: after each failed transaction the next is half as large, and it grows back slowly."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from publisher.delivery.refusal_bisection import ONE_BY_ONE_EVENTS, ONE_BY_ONE_ROWS
from publisher.delivery.sender import Sender
from publisher.delivery.transaction import OffsetTally
from publisher.delivery.transaction_size import TransactionSize
from publisher.kafka.written_ends import WrittenEnds
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.refusals import RecordRefusedError
from publisher.protocol.stop_reasons import StartOverError
from tests.support.lanes import PLAIN

TIMEOUT_S = 60.0


@pytest.mark.guarantee(69)
@given(
    rows=st.integers(1, 3_000),
    row_bytes=st.integers(100, 20_000),
    per_second=st.integers(1_000, 50_000_000),
)
def test_a_backlog_gets_through_and_few_transactions_are_lost(
    rows: int, row_bytes: int, per_second: int
) -> None:
    if row_bytes > per_second * TIMEOUT_S:
        return  # a row that cannot go out alone
    size = TransactionSize(1_000, 16 << 20, TIMEOUT_S)
    sent = failures = 0
    while sent < rows:
        chunk = max(1, min(size.rows, rows - sent, -(-size.bytes // row_bytes)))
        took = chunk * row_bytes / per_second
        if took > TIMEOUT_S:
            size.failed(chunk, chunk * row_bytes, "timed out")
            failures += 1
        else:
            size.committed(took)
            sent += chunk
        # Halvings to the size that fits; it never grows back beyond that.
        assert failures <= 15


def test_it_grows_back_to_what_the_settings_allow_and_says_so_while_it_has_not() -> None:
    size = TransactionSize(1_000, 1 << 20, TIMEOUT_S)
    size.failed(400, 1 << 20, "first")
    assert (size.rows, size.bytes, size.reason) == (200, 1 << 19, None)
    size.failed(200, 1 << 19, "Kafka: timed out")
    assert (size.rows, size.bytes) == (100, 1 << 18)
    assert "100 rows and 262144 bytes" in str(size.reason)
    assert "Kafka: timed out" in str(size.reason)
    size.committed(TIMEOUT_S / 2)
    assert size.rows == 100
    for _ in range(20):
        size.committed(0.1)
    assert (size.rows, size.bytes, size.reason) == (1_000, 1 << 20, None)


def test_a_transaction_without_rows_tells_nothing() -> None:
    size = TransactionSize(1_000, 1 << 20, TIMEOUT_S)
    size.failed(0, 0, "Kafka is away")
    assert size.rows == 1_000


class Failing:
    """A transaction that fails after so long; librdkafka says `complaint` meanwhile, and Kafka confirms so many records."""

    took_s, code, complaint, confirmed = 0.0, 0, "", 0

    def __init__(self, *_: Any, complaints: Any, **__: Any) -> None:
        self.tally = OffsetTally()
        self._complaints = complaints

    def run(self, rows: Any, *_: Any) -> None:
        if self.complaint:
            self._complaints(KafkaError(KafkaError._TRANSPORT, self.complaint))
        for offset in range(self.confirmed):
            report: Any = SimpleNamespace(
                topic=lambda: "out", partition=lambda: 0, offset=lambda at=offset: at
            )
            self.tally.report(None, report)
        if self.code == KafkaError.INVALID_RECORD:
            raise RecordRefusedError(KafkaError(self.code), {}, len(rows))
        raise KafkaException(KafkaError(self.code))


def sender_of(patch: pytest.MonkeyPatch, **failure: Any) -> Sender:
    """Return one whose transactions fail in that way while a refused record is searched for, and which has sent one of 1,000 rows."""
    for name, value in failure.items():
        patch.setattr(Failing, name, value)
    patch.setattr("publisher.delivery.sender.Transaction", Failing)
    context: Any = SimpleNamespace(stop=None, turns=None, topics=SimpleNamespace(written=WrittenEnds()))
    sender = Sender(context, Outgoing(), "lane", TransactionSize(1_000, 1 << 20, TIMEOUT_S), 60_000)
    producer: Any = SimpleNamespace(poll=lambda _seconds: 0)
    sender.producer = producer
    return sender


def send(sender: Sender, rows: int) -> None:
    with sender.finding_refused(lambda *_: None, RuntimeError):
        sender.send([PLAIN] * rows, [])


AWAY = (
    "127.0.0.1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"
)
CUT = "127.0.0.1:9092/1: Disconnected: connection closed by peer (after 11024ms in state UP)"


@pytest.mark.guarantee(69)
@pytest.mark.parametrize(
    ("failure", "smaller"),
    [
        ({"code": KafkaError._TIMED_OUT, "took_s": 50.0}, True),
        ({"code": KafkaError.INVALID_PRODUCER_EPOCH, "took_s": 61.0}, True),
        ({"code": KafkaError._FENCED, "took_s": 61.0}, True),
        ({"code": KafkaError._MSG_TIMED_OUT, "took_s": 5.0}, True),
        ({"code": KafkaError._MSG_TIMED_OUT, "took_s": 60.0, "complaint": CUT}, True),
        ({"code": KafkaError._MSG_TIMED_OUT, "took_s": 60.0, "complaint": AWAY, "confirmed": 1}, True),
        ({"code": KafkaError._MSG_TIMED_OUT, "took_s": 60.0, "complaint": AWAY}, False),
        ({"code": KafkaError._FENCED, "took_s": 1.0}, False),
        ({"code": KafkaError.INVALID_PRODUCER_EPOCH, "took_s": 1.0}, False),
        ({"code": KafkaError._TIMED_OUT, "took_s": 1.0}, False),
        ({"code": KafkaError._AUTHENTICATION, "took_s": 60.0}, False),
        ({"code": KafkaError._SSL, "took_s": 60.0}, False),
        ({"code": KafkaError.TOPIC_AUTHORIZATION_FAILED, "took_s": 60.0}, False),
        ({"code": KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "took_s": 60.0}, False),
        ({"code": KafkaError._UNKNOWN_TOPIC, "took_s": 31.0}, False),
        ({"code": KafkaError.UNKNOWN_TOPIC_OR_PART, "took_s": 31.0}, False),
    ],
)
def test_only_a_failure_that_size_may_explain_makes_transactions_smaller_and_shortens_a_search(
    monkeypatch: pytest.MonkeyPatch, failure: dict[str, Any], smaller: bool
) -> None:
    sender = sender_of(monkeypatch, code=KafkaError.INVALID_RECORD)
    with pytest.raises(StartOverError):
        send(sender, 2 * ONE_BY_ONE_ROWS)
    for name, value in failure.items():
        monkeypatch.setattr(Failing, name, value)
    with pytest.raises(KafkaException):
        send(sender, ONE_BY_ONE_ROWS)
    limits = sender.limits
    assert limits.rows == (ONE_BY_ONE_ROWS // 2 if smaller else ONE_BY_ONE_ROWS)
    assert limits.events == ONE_BY_ONE_EVENTS
    assert (sender.size.rows < 1_000) == smaller


def test_a_failure_before_anything_is_sent_leaves_a_search_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = sender_of(monkeypatch, code=KafkaError.INVALID_RECORD)
    with pytest.raises(StartOverError):
        send(sender, 1_000)
    with pytest.raises(KafkaException), sender.finding_refused(lambda *_: None, RuntimeError):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Kafka did not describe the topics"))
    assert sender.limits.rows == 500


def test_an_outage_long_ago_does_not_hide_that_a_transaction_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = sender_of(monkeypatch, code=KafkaError._MSG_TIMED_OUT, took_s=60.0, complaint=AWAY)
    for rows, complaint in ((1_000, AWAY), (500, "")):
        monkeypatch.setattr(Failing, "complaint", complaint)
        with pytest.raises(KafkaException):
            send(sender, 1_000)
        assert sender.size.rows == rows
