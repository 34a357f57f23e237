"""A lane whose connection to Kafka broke takes a new producer epoch, after what it delivered and before it delivers more."""

import logging
from typing import Any, cast

import pytest

from publisher.delivery.sender import StepOutcome
from publisher.kafka.coordinator_link import CoordinatorLink
from publisher.monitoring import metrics
from publisher.protocol.stop_reasons import StartOverError
from tests.support.lanes import CLOSED, opened

# As librdkafka 2.16 writes it.
TIMED_OUT = "[thrd:TxnCoordinator]: TxnCoordinator: 127.0.0.1:40871: Timed out EndTxnRequest in flight (after 60000ms, timeout #0)"
ANOTHER = "[thrd:127.0.0.1:9092/bootstrap]: 127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused"


@pytest.mark.guarantee(32)
def test_a_lane_that_delivered_over_a_broken_link_starts_over() -> None:
    before = metrics.REGISTRY.get_sample_value("outbox_links_broken_total") or 0.0
    with pytest.raises(StartOverError):
        opened(StepOutcome.DELIVERED, breaks=True).run_once()
    assert metrics.REGISTRY.get_sample_value("outbox_links_broken_total") == before + 1


@pytest.mark.parametrize(("outcome", "breaks"), [(StepOutcome.DELIVERED, False), (StepOutcome.IDLE, True)])
def test_a_lane_continues_over_a_good_link_and_where_nothing_was_sent(
    outcome: StepOutcome, breaks: bool
) -> None:
    assert opened(outcome, breaks=breaks).run_once() is outcome


def test_a_broker_that_cannot_be_reached_beside_the_coordinator_makes_no_lane_start_over() -> None:
    link = CoordinatorLink()
    link.logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", ANOTHER)
    link.logger.log(
        logging.WARNING,
        "%s [%s] %s",
        "GETPID",
        "rdkafka#producer-1",
        "TxnCoordinator: Not coordinator: retrying",
    )
    assert not link.has_broken


def test_a_commit_that_was_not_answered_in_time_counts_as_a_broken_link() -> None:
    link = CoordinatorLink()
    link.logger.log(logging.INFO, "%s [%s] %s", "REQTMOUT", "rdkafka#producer-1", TIMED_OUT)
    assert link.has_broken


def test_a_connection_that_failed_before_the_epoch_began_or_while_nothing_was_sent_makes_no_lane_start_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fencing:
        """A producer that has lines of its log to serve."""

        def __init__(self, logger: logging.Logger) -> None:
            self._logger = logger
            self.lines = [CLOSED]

        def poll(self, _seconds: float) -> None:
            while self.lines:
                self._logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", self.lines.pop())

    def fenced(*arguments: Any) -> Fencing:
        producer = Fencing(arguments[6])
        producer.poll(0)
        producer.lines.append(CLOSED)
        return producer

    monkeypatch.setattr("publisher.delivery.sender.fencing_producer", fenced)
    lane = opened(StepOutcome.DELIVERED, breaks=False)
    lane.sender.fence("id", 1)
    producer = cast(Fencing, lane.sender.producer)
    producer.poll(0)
    assert lane.run_once() is StepOutcome.DELIVERED
    # A broker closes what has been idle for ten minutes.
    producer.lines.append(CLOSED)
    producer.poll(0)
    assert lane.run_once() is StepOutcome.DELIVERED
    lane.sender.breaks = True
    with pytest.raises(StartOverError):
        lane.run_once()
