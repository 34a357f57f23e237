"""A range read beside Spark is whole, or it is refused: a lagging replica, an answer too late and a deleted record are no end."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from service.kafka import reading as kafka_reading
from spark_job.input.reading import NoAnswerError, RecordsGoneError, committed_ranges, committed_records
from tests.support.proxies.scripted_consumer import EOF, Answer, ScriptedConsumer

Reading = Callable[..., list[int]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Read [3, 7) of in/0 from these answers; return the offsets."""

    def offsets(*answers: Answer, end: int = 7) -> list[int]:
        consumer = ScriptedConsumer(answers)
        monkeypatch.setattr(kafka_reading, "Consumer", consumer)
        # A second for each look at the clock: no test waits for it.
        monkeypatch.setattr(kafka_reading, "time", SimpleNamespace(monotonic=itertools.count().__next__))
        options = {
            "bootstrap.servers": "here:9092",
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "latest",
        }
        try:
            return [
                message.offset()
                for messages in committed_records(options, "in", 0, 3, end, 20)
                for message in messages
            ]
        finally:
            assert consumer.assigned[0] == ("in", 0, 3)
            assert consumer.closed
            assert consumer.options["isolation.level"] == "read_committed"
            assert consumer.options["auto.offset.reset"] == "error"
            assert consumer.options["enable.auto.commit"] is False
            assert consumer.options["bootstrap.servers"] == "here:9092"

    return offsets


def test_the_first_record_at_or_above_the_end_ends_it_and_is_not_given(read: Reading) -> None:
    assert read(Answer(3), Answer(5), Answer(7), Answer(8)) == [3, 5]
    assert read(Answer(9)) == []


def test_the_partitions_end_ends_it_where_it_is_at_or_above_the_end(read: Reading) -> None:
    """Transactions leave offsets without a record: the last ones before the end may have none."""
    assert read(Answer(3), Answer(7, EOF), Answer(5)) == [3]


def test_an_end_below_the_end_is_a_replica_that_lags_and_is_asked_again(read: Reading) -> None:
    assert read(Answer(3), Answer(4, EOF), Answer(5, EOF), Answer(5), Answer(7, EOF)) == [3, 5]
    with pytest.raises(
        NoAnswerError,
        match=r"in/0 was not read to offset 7 within 20 s: it ends at offset 5",
    ):
        read(Answer(3), Answer(5, EOF))


def test_no_answer_is_no_end(read: Reading) -> None:
    with pytest.raises(NoAnswerError, match="no answer"):
        read(Answer(3))


def test_the_time_is_from_one_record_to_the_next(read: Reading) -> None:
    assert len(read(*map(Answer, range(3, 43)), Answer(43, EOF), end=43)) == 40


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_deleted_records_are_said_and_not_passed_over(read: Reading, code: int) -> None:
    with pytest.raises(
        RecordsGoneError,
        match="Kafka has deleted some of the records that are needed: in/0 from 3 up to 7",
    ):
        read(Answer(3), Answer(5, code), Answer(6), Answer(7))


def test_only_the_partition_whose_records_are_deleted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Answer(5, KafkaError._AUTO_OFFSET_RESET, partition=1)
    monkeypatch.setattr(kafka_reading, "Consumer", ScriptedConsumer([Answer(3), gone]))
    with pytest.raises(RecordsGoneError, match="are needed: in/1 from 5 up to 9: ") as raised:
        list(committed_ranges({}, {("in", 0): (3, 7), ("in", 1): (5, 9)}, 20))
    assert "in/0" not in str(raised.value)


@pytest.mark.parametrize("code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT])
def test_a_broker_that_is_away_is_waited_for(read: Reading, code: int) -> None:
    assert read(
        Answer(3), Answer(0, code), Answer(0, KafkaError.LEADER_NOT_AVAILABLE, retriable=True), Answer(7)
    ) == [3]


def test_anything_else_is_a_failure(read: Reading) -> None:
    with pytest.raises(KafkaException, match="said so"):
        read(Answer(3), Answer(0, KafkaError.TOPIC_AUTHORIZATION_FAILED), Answer(7))
