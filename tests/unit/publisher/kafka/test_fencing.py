"""Why a lane gets no producer: what nobody but a person can change stops it, and what it says names the settings."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.kafka import clients, fencing
from publisher.kafka.fencing import end_transaction, fencing_producer
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.settings import KafkaSettings

Told = Callable[[KafkaError], None]


class Refusing:
    """A producer whose transactions begin with `error`, after librdkafka has said `complaint`."""

    def __init__(self, told: Told, error: KafkaError, complaint: KafkaError | None) -> None:
        self._told, self._error, self._complaint = told, error, complaint

    def init_transactions(self, _timeout: float) -> None:
        raise KafkaException(self._error)

    def poll(self, _timeout: float) -> None:
        if self._error.fatal():
            raise KafkaException(self._error)  # once, as librdkafka does, whatever was raised before
        if self._complaint is not None:
            self._told(self._complaint)


class FakeTopics:
    """A cluster of one broker, with or without a transaction log."""

    def __init__(self, *, has_log: bool) -> None:
        self.has_log = has_log

    def lack_transaction_log(self) -> bool:
        return not self.has_log

    def brokers(self) -> int:
        return 1


def fence(
    patch: pytest.MonkeyPatch, error: KafkaError, complaint: KafkaError | None = None, *, has_log: bool = True
) -> Exception:
    """What is raised."""

    def made(*arguments: Any) -> Refusing:
        return Refusing(arguments[5], error, complaint)

    patch.setattr(clients, "lane_producer", made)
    patch.setattr(fencing, "time", type("Clock", (), {"monotonic": iter(range(0, 10_000, 20)).__next__}))
    topics: Any = FakeTopics(has_log=has_log)
    with pytest.raises((KafkaException, StoppedError)) as raised:
        fencing_producer(KafkaSettings(), topics, "id", 60_000, 1, lambda: False)
    return raised.value


TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "Timed out waiting for operation", retriable=True)


def test_a_transaction_timeout_above_the_brokers_names_both_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    error = fence(monkeypatch, KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT, fatal=True))
    assert isinstance(error, StoppedError)
    assert error.reason is StopReason.TRANSACTIONS_REFUSED
    assert "[publisher] transaction_timeout_ms = 60000" in str(error)
    assert "transaction.max.timeout.ms" in str(error)


def test_a_transaction_log_that_cannot_be_made_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    error = fence(monkeypatch, TIMED_OUT, has_log=False)
    assert isinstance(error, StoppedError)
    assert error.reason is StopReason.TRANSACTIONS_REFUSED
    assert "transaction.state.log.replication.factor" in str(error)


def test_a_right_that_is_missing_is_not_taken_for_a_missing_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody was ever let in, there is no log either."""
    refused = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True)
    error = fence(monkeypatch, refused, has_log=False)
    assert isinstance(error, KafkaException)
    assert "Write on transactional id 'id' is needed" in error.args[0].str()


def test_a_kafka_that_is_away_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = fence(monkeypatch, TIMED_OUT)
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == KafkaError._TIMED_OUT
    assert "does not begin transactions of id" in error.args[0].str()
    assert "a leader of __transaction_state" in error.args[0].str()


def test_a_broker_that_cannot_be_reached_is_named_instead_of_the_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = fence(monkeypatch, TIMED_OUT, KafkaError(KafkaError._TRANSPORT, "kafka-3:9092/3: refused"))
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == KafkaError._TIMED_OUT
    assert "kafka-3:9092/3: refused" in error.args[0].str()
    assert "coordinator" not in error.args[0].str()


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_a_refused_login_is_said_instead_of_a_timeout(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    error = fence(monkeypatch, TIMED_OUT, KafkaError(code, "refused"))
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == code


def test_the_end_of_an_open_transaction_is_asked_for_a_few_seconds_and_fails_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def fencing_producer(*arguments: Any) -> Any:
        give_up = arguments[5]
        asked.extend(give_up() for _ in range(3))
        raise KafkaException(TIMED_OUT)

    monkeypatch.setattr(fencing, "fencing_producer", fencing_producer)
    monkeypatch.setattr(fencing, "time", type("Clock", (), {"monotonic": iter((0, 1, 4, 6)).__next__}))
    topics: Any = FakeTopics(has_log=True)
    assert not end_transaction(KafkaSettings(), topics, "id", 60_000)
    assert asked == [False, False, True]
