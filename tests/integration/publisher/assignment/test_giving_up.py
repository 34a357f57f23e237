"""A lane that hangs, and a process that cannot deliver, lose their lanes to a process that can."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from devstack.kafka import KafkaServer
from publisher.kafka import fencing
from publisher.monitoring.health import ProcessHealth
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import KafkaSettings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained, spread
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.processes.service import Service
from tests.support.queries import query
from tests.support.scraping import asked, free_port
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

LANES = 8


@pytest.fixture
def outbox(database: str, topic: str) -> Outbox:
    """An empty outbox with eight lanes."""
    return Outbox(database, topic, lanes=LANES)


def held_by(outbox: Outbox, process: Service) -> set[int]:
    """The lanes of a process."""
    rows = query(
        outbox.dsn,
        "SELECT l.lane FROM outbox.lane l JOIN outbox.publisher_process p ON p.process_id::text = l.lease_holder"
        " WHERE l.lease_until >= now() AND p.pid = %s",
        process.pid,
    )
    return {lane for (lane,) in rows}


@pytest.mark.guarantee(101)
@pytest.mark.parametrize(
    ("point", "doing", "hold_up"),
    [
        ("transaction.during_produce", "hands rows to Kafka's client", LANES),
        ("transaction.before_commit", "waits for Kafka's commit", 1),
    ],
    ids=["in its turn", "alone"],
)
def test_a_lane_that_hangs_and_those_that_wait_for_it_are_delivered_by_another_process(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, tmp_path: Path, point: str, doing: str, hold_up: int
) -> None:
    """`hold_up`: how many lanes deliver nothing because one hangs."""
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_timeout_ms=1_000)
    plan, port = FaultPlan(tmp_path / "plan.json"), free_port()
    variables = {"OUTBOX_TESTING__FAULT_FILE": str(plan.file), "OUTBOX_METRICS__PORT": str(port)}
    hanging = publisher_service(settings, tmp_path / "hanging.log", variables)
    other = publisher_service(settings, tmp_path / "other.log")

    def post_mortem() -> str:
        return f"{spread(outbox.dsn)}\n{hanging.post_mortem()}\n{other.post_mortem()}"

    plan.write(Fault(point, Action.HOLD, 5))
    with hanging:
        for batch in range(1, 4):
            outbox.batch(simple(batch, keys=40))
        wait_until(lambda: not plan.pending(), post_mortem)
        with other:
            wait_until(lambda: drained(outbox.dsn), post_mortem)
            wait_until(lambda: len(held_by(outbox, hanging)) <= LANES - hold_up, post_mortem)
            loops = asked(port, "healthz")[1]["loops"]
            (hangs,) = [name for name, loop in loops.items() if loop.get("doing") == doing]
            assert int(hangs.rpartition("/")[2]) in held_by(outbox, other)
            # It is of use again once nothing hangs any more.
            plan.write()
            wait_until(lambda: spread(outbox.dsn) == [LANES // 2, LANES // 2], post_mortem)
            outbox.batch(simple(4, keys=40))
            wait_until(lambda: drained(outbox.dsn), post_mortem)
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(101)
def test_a_process_that_has_lost_kafka_leaves_its_lanes_to_one_that_has_not(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ever, lost = fencing.fencing_producer, False

    def fencing_producer(kafka: KafkaSettings, *arguments: Any) -> Any:
        if lost and kafka.options.get("client.id") == "lost":
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        return as_ever(kafka, *arguments)

    monkeypatch.setattr("publisher.delivery.sender.fencing_producer", fencing_producer)
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, {"client.id": "lost"})
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"request_timeout_s": 1})}
    )
    health = ProcessHealth()
    batch = 0

    def feed() -> None:
        nonlocal batch
        batch += 1
        outbox.batch(simple(batch, keys=40))

    with RelayThread(settings, health) as first:
        with RelayThread(settings_for(outbox.dsn, kafka.bootstrap_servers)):
            feed()
            wait_until(
                lambda: drained(outbox.dsn) and spread(outbox.dsn) == [LANES // 2, LANES // 2], "both at work"
            )
            assert health.verdict().holds
            lost = True
            with psycopg.connect(outbox.dsn, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'publisher lane%%' AND datname = current_database()"
                )

            def is_left() -> bool:
                feed()
                return spread(outbox.dsn) == [LANES] and not health.lanes()

            wait_until(is_left, lambda: f"one process with all lanes: {spread(outbox.dsn)}", poll_s=0.5)
            (reason,) = health.verdict().reasons
            assert "while other processes did" in reason
            wait_until(lambda: drained(outbox.dsn), "the delivery")
            assert first.error is None
        lost = False
        feed()
        wait_until(lambda: drained(outbox.dsn), "the delivery by the one that is left")
        assert health.verdict().holds
    assert_exactly_once(outbox, watcher)
