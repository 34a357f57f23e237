"""What only a person can change about a broker's transactions, or the progress topic's settings, stops the lanes and is named by them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devstack.kafka import Kafka
from devstack.topics import create_topics
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import status_of
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("broker", "publisher", "named"),
    [
        (
            {"transaction.max.timeout.ms": "30000"},
            {},
            (
                "transactions_refused",
                "[publisher] transaction_timeout_ms = 60000",
                "transaction.max.timeout.ms",
            ),
        ),
        (
            {"transaction.state.log.replication.factor": "3"},
            {},
            ("transactions_refused", "transaction.state.log.replication.factor", "there are 1"),
        ),
        (
            {},
            {"progress_replication": 2},
            ("progress_topic_refused", "[publisher] progress_replication", "with 2 replicas"),
        ),
    ],
    ids=["timeout", "log", "progress topic"],
)
def test_a_broker_that_takes_no_such_transaction_or_topic_stops_the_lanes(
    new_database: Callable[[], str],
    topic_prefix: str,
    tmp_path: Path,
    broker: dict[str, str],
    publisher: dict[str, Any],
    named: tuple[str, ...],
) -> None:
    kafka = Kafka(tmp_path / "kafka", fast=True, settings=broker)
    kafka.start()
    try:
        outbox = Outbox(new_database(), f"{topic_prefix}out")
        create_topics(kafka.bootstrap_servers, {outbox.topic: (1, {})})
        outbox.batch({"a": [Session([b"1"], 1)]})
        settings = settings_for(outbox.dsn, kafka.bootstrap_servers, **publisher)
        settings = settings.model_copy(
            update={"kafka": settings.kafka.model_copy(update={"request_timeout_s": 5})}
        )
        with RelayThread(settings):
            wait_until(lambda: stopped(outbox.dsn, named), lambda: f"{named}, but {reasons(outbox.dsn)}")
    finally:
        kafka.destroy()


def stopped(dsn: str, named: tuple[str, ...]) -> bool:
    """Whether a lane says so."""
    return any(
        reason.startswith(named[0]) and all(each in reason for each in named) for reason in reasons(dsn)
    )


def reasons(dsn: str) -> list[str]:
    """Why lanes stand still."""
    return [lane.stopped_reason or "" for lane in status_of(dsn).lanes]
