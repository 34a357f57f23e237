"""A lane that hangs, and a process that cannot deliver, lose their lanes to a process that can."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from devstack.kafka import KafkaServer
from publisher.kafka import fencing
from publisher.monitoring.health import ProcessHealth, longest_attempt_s
from service.kafka import client as kafka_client
from service.kafka.client import KafkaAdmin
from service.kafka.topics import partition_offsets
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import KafkaSettings, Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained, spread, status_of
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.processes.service import Service
from tests.support.queries import query
from tests.support.scraping import asked, free_port
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

LANES = 8
LEASE_S, SLACK_S = 3.0, 12.0


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


def living(outbox: Outbox) -> int:
    """How many processes count as living."""
    ((count,),) = query(outbox.dsn, "SELECT count(*) FROM outbox.publisher_process WHERE alive_until > now()")
    return int(count)


def undelivered(outbox: Outbox) -> int:
    """How many lanes are not at the ledger's end."""
    return sum(bool(lane.lag_batches) or lane.cursor_key is not None for lane in status_of(outbox.dsn).lanes)


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
    settings = settings_for(
        outbox.dsn, kafka.bootstrap_servers, transaction_timeout_ms=1_000, lease_s=LEASE_S
    )
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
            wait_until(lambda: living(outbox) == 2, post_mortem)
            # The others move within a lease, whatever the hanging one's step may take.
            wait_until(lambda: undelivered(outbox) <= 1, post_mortem, LEASE_S + SLACK_S)
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


class LostKafka:
    """While `lost`, Kafka answers no process whose `client.id` is one of `clients`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clients: set[str]) -> None:
        self.lost = False
        self.clients = clients
        self._admins: list[tuple[KafkaAdmin, KafkaSettings]] = []
        self._make_admin, self._make_producer = kafka_client.admin_client, fencing.fencing_producer
        monkeypatch.setattr(kafka_client, "admin_client", self._admin_client)
        monkeypatch.setattr("publisher.kafka.topics.partition_offsets", self._partition_offsets)
        monkeypatch.setattr("publisher.delivery.sender.fencing_producer", self._fencing_producer)

    def _admin_client(self, kafka: KafkaSettings) -> KafkaAdmin:
        admin = self._make_admin(kafka)
        self._admins.append((admin, kafka))
        return admin

    def _partition_offsets(self, admin: KafkaAdmin, *arguments: Any, **options: Any) -> Any:
        if self.lost and any(admin is each and self._loses(kafka) for each, kafka in self._admins):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return partition_offsets(admin, *arguments, **options)

    def _fencing_producer(self, kafka: KafkaSettings, *arguments: Any) -> Any:
        if self.lost and self._loses(kafka):
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        return self._make_producer(kafka, *arguments)

    def _loses(self, kafka: KafkaSettings) -> bool:
        return kafka.options.get("client.id") in self.clients


def losing_settings(outbox: Outbox, kafka: KafkaServer, name: str, **publisher: Any) -> Settings:
    """Of a process with this `client.id`, which soon takes Kafka for lost."""
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, {"client.id": name}, **publisher)
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"request_timeout_s": 1})})


def end_lanes_connections(dsn: str) -> None:
    """Have every lane opened again."""
    query(
        dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'publisher lane%%' AND datname = current_database()",
    )


@pytest.mark.guarantee(101)
def test_a_process_that_has_lost_kafka_leaves_its_lanes_to_one_that_has_not(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = LostKafka(monkeypatch, {"lost"})
    settings = losing_settings(outbox, kafka, "lost")
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
            losing.lost = True
            end_lanes_connections(outbox.dsn)

            def is_left() -> bool:
                feed()
                return spread(outbox.dsn) == [LANES] and not health.lanes()

            wait_until(is_left, lambda: f"one process with all lanes: {spread(outbox.dsn)}", poll_s=0.5)
            (reason,) = health.verdict().reasons
            assert "while other processes did" in reason
            wait_until(lambda: drained(outbox.dsn), "the delivery")
            assert first.error is None
        losing.lost = False
        feed()
        wait_until(lambda: drained(outbox.dsn), "the delivery by the one that is left")
        assert health.verdict().holds
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(101)
def test_with_fewer_lanes_than_processes_the_one_that_has_lost_kafka_leaves_them_to_one_that_reaches_it(
    database: str, topic: str, kafka: KafkaServer, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(database, topic, lanes=1)
    losing = LostKafka(monkeypatch, {"first", "second"})
    health, waiting = ProcessHealth(), ProcessHealth()
    # No heartbeat may be late, whatever else the machine does.
    settings = losing_settings(outbox, kafka, "first", lease_s=10.0)
    other = settings_for(outbox.dsn, kafka.bootstrap_servers, {"client.id": "second"}, lease_s=10.0)

    with RelayThread(settings, health) as holder:
        outbox.batch(simple(1, keys=1))
        wait_until(lambda: drained(outbox.dsn) and health.lanes(), "the delivery by the first process")
        with RelayThread(other, waiting):
            wait_until(lambda: living(outbox) == 2, "two processes")
            # An outage for both: the lane stays, for longer than a process that fails alone would keep it.
            losing.lost = True
            end_lanes_connections(outbox.dsn)
            outbox.batch(simple(2, keys=1))
            wait_until(
                lambda: living(outbox) == 1, "the one that stands by to say that Kafka does not answer it"
            )
            assert not waiting.verdict().reasons
            patience_s = longest_attempt_s(settings)
            wait_until(
                lambda: health.snapshot().lanes[0].progress_s_ago > 2 * patience_s,
                "a lane that fails for long",
            )
            assert health.verdict().holds
            assert not waiting.lanes()
            # Kafka answers the second process again.
            losing.clients = {"first"}
            wait_until(lambda: drained(outbox.dsn), "the delivery by the second process")
            (reason,) = health.verdict().reasons
            assert "while other processes can" in reason
            assert holder.error is None
    assert_exactly_once(outbox, watcher)
