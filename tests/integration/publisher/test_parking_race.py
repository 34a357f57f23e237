"""A publisher that was taken over while it parked a row neither parks after that, nor does its successor send what it parked."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db import fault_points
from db.fault_points import Action, Fault, Plan
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.parked import Choice, newest_batch, requeue
from tests.integration.publisher.harness import (
    InThread,
    Watcher,
    assert_exactly_once,
    drained,
    query,
    settings_for,
    wait_until,
    wait_until_all_read,
)
from tests.integration.publisher.outbox_rows import Outbox, Session
from tests.integration.publisher.topic_limits import set_limit

LIMIT = 2_000
TOO_LARGE = b"x" * LIMIT


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An output topic that takes batches of at most LIMIT bytes."""
    name = f"{topic_prefix}small"
    create_topics(kafka.bootstrap_servers, {name: (1, {"max.message.bytes": str(LIMIT)})})
    return name


@pytest.fixture
def outbox(database: str, topic: str) -> Outbox:
    """An outbox with one lane, so that the plan meets that one."""
    return Outbox(database, topic, lanes=1)


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    """The plan that this process follows."""
    made = Plan(tmp_path / "faults.json")
    fault_points.arm(made.file)
    yield made
    made.write()
    fault_points.arm(None)


def parked(dsn: str) -> list[tuple[str, int, str]]:
    """(session_key, batch_id, state) of what was parked."""
    return query(dsn, "SELECT session_key, batch_id, state FROM outbox.parked ORDER BY batch_id, session_key")


def test_what_a_publisher_parked_before_it_was_taken_over_is_not_sent_by_its_successor(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, plan: Plan
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, lease_s=1.0, poll_ms=100)
    outbox.batch({"a": [Session([TOO_LARGE], 10)]})
    plan.write(Fault("lane.after_admission", Action.HOLD))
    with InThread(settings):
        wait_until(lambda: plan.fired() != [], "the row to be parked")
        # Nothing is refused any more, yet the row is put aside.
        set_limit(kafka.bootstrap_servers, outbox.topic, 1_000_000)
        with InThread(settings):
            wait_until(lambda: drained(outbox.dsn), "the successor to pass the row")
            plan.write()
            with psycopg.connect(outbox.dsn, autocommit=True) as connection:
                assert watcher.seen == []
                requeue(connection, Choice(newest_batch(connection)))
            wait_until(lambda: drained(outbox.dsn), "the requeued row")
            assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 1, "requeued")]


def test_a_publisher_that_was_taken_over_does_not_park_what_its_successor_has_sent(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, plan: Plan
) -> None:
    settings = settings_for(
        outbox.dsn, kafka.bootstrap_servers, lease_s=1.0, poll_ms=100, idle_progress_s=3_600
    )
    outbox.batch({"a": [Session([b"1"], 9)]})
    with InThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the first row")
        plan.write(Fault("lane.after_read", Action.HOLD))
        outbox.batch({"a": [Session([TOO_LARGE], 10)]})
        wait_until(lambda: plan.fired() != [], "the second row to be read")
        set_limit(kafka.bootstrap_servers, outbox.topic, 1_000_000)
        with InThread(settings):
            wait_until(lambda: drained(outbox.dsn), "the successor to send the row")
            # So that the first one finds the row too large when it goes on.
            set_limit(kafka.bootstrap_servers, outbox.topic, LIMIT)
            plan.write(Fault("lane.before_lease", Action.PASS))
            wait_until(lambda: plan.pending() == [], "the first one to start over")
            wait_until_all_read(watcher)
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == []
