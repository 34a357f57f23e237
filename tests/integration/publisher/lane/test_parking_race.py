"""A publisher that was taken over while it parked a row neither parks after that, nor does its successor send what it parked."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.outbox.ledger import newest_batch
from publisher.outbox.parked import Choice, requeue
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.processes.service import Service
from tests.support.queries import query
from tests.support.servers.topic_limits import set_limit
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

LIMIT = 2_000
TOO_LARGE = b"x" * LIMIT
QUICK: dict[str, Any] = {"lease_s": 1.0, "poll_ms": 100, "idle_progress_s": 3_600}


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
def plan(tmp_path: Path) -> FaultPlan:
    """The plan that the first publisher follows; its successor, in this process, follows none."""
    return FaultPlan(tmp_path / "faults.json")


@pytest.fixture
def first(outbox: Outbox, kafka: KafkaServer, plan: FaultPlan, tmp_path: Path) -> Service:
    """A publisher that loses its lane within a second of standing still."""
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, **QUICK)
    environment = {"OUTBOX_TESTING__FAULT_FILE": str(plan.file)}
    return publisher_service(settings, tmp_path / "first.log", environment)


def parked(dsn: str) -> list[tuple[str, int, str]]:
    """(session_key, batch_id, state) of what was parked."""
    return query(dsn, "SELECT session_key, batch_id, state FROM outbox.parked ORDER BY batch_id, session_key")


def lane_connections(dsn: str) -> int:
    """How many workers are on a lane."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'publisher lane%%'"
    ((found,),) = query(dsn, sql)
    return int(found)


@pytest.mark.guarantee(71)
def test_what_a_publisher_parked_before_it_was_taken_over_is_not_sent_by_its_successor(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, plan: FaultPlan, first: Service
) -> None:
    outbox.batch({"a": [Session([TOO_LARGE], 10)]})
    plan.write(Fault("delivery.after_admission", Action.HOLD))
    with first:
        wait_until(lambda: plan.fired() != [], first.log)
        first.pause()
        # Nothing is refused any more, yet the row is put aside.
        set_limit(kafka.bootstrap_servers, outbox.topic, 1_000_000)
        with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers, **QUICK)):
            wait_until(lambda: drained(outbox.dsn), "the successor to pass the row")
            plan.write()
            first.resume()
            with psycopg.connect(outbox.dsn, autocommit=True) as connection:
                assert watcher.seen == []
                requeue(connection, Choice(newest_batch(connection)))
            wait_until(lambda: drained(outbox.dsn), "the requeued row")
            assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 1, "requeued")]


@pytest.mark.guarantee(71)
def test_a_publisher_that_was_taken_over_does_not_park_what_its_successor_has_sent(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, plan: FaultPlan, first: Service
) -> None:
    outbox.batch({"a": [Session([b"1"], 9)]})
    with first:
        wait_until(lambda: drained(outbox.dsn), first.log)
        plan.write(Fault("delivery.after_read", Action.HOLD))
        outbox.batch({"a": [Session([TOO_LARGE], 10)]})
        wait_until(lambda: plan.fired() != [], first.log)
        first.pause()
        set_limit(kafka.bootstrap_servers, outbox.topic, 1_000_000)
        with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers, **QUICK)):
            wait_until(lambda: drained(outbox.dsn), "the successor to send the row")
            # So that the first one finds the row too large when it continues.
            set_limit(kafka.bootstrap_servers, outbox.topic, LIMIT)
            plan.write()
            assert lane_connections(outbox.dsn) == 2
            first.resume()
            wait_until(lambda: lane_connections(outbox.dsn) == 1, first.log)
            watcher.wait_until_all_read()
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == []
