"""Each alert about the publisher fires on its fault and ends after it; under the fault, the runbook's commands show the cause."""

from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from db.migrate import upgrade
from devstack.kafka import Kafka, KafkaServer
from devstack.postgres import Postgres
from devstack.topics import create_topics
from tests.support.monitoring.prometheus import Prometheus
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import drained
from tests.support.processes.commands import run_command
from tests.support.processes.environment import variables_of
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.queries import query
from tests.support.scraping import asked, free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.monitoring, pytest.mark.timeout(1_200)]


def test_the_alerts_about_a_publisher(
    own_postgres: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, alerting: Any
) -> None:
    upgrade(own_postgres.dsn())
    topic, small, missing = (f"{topic_prefix}{name}" for name in ("events", "small", "missing"))
    create_topics(kafka.bootstrap_servers, {topic: (3, {}), small: (1, {"max.message.bytes": "1000"})})
    outbox = Outbox(own_postgres.dsn(), topic)
    port = free_port()
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers)
    variables = variables_of(settings) | {
        "OUTBOX_METRICS__PORT": str(port),
        "OUTBOX_METRICS__REFRESH_S": "0.2",
        "OUTBOX_METRICS__PROGRESS_S": "1",
        "OUTBOX_RETENTION__KEEP_S": "60",
    }
    publisher = publisher_service(settings, tmp_path / "publisher.log", variables)
    addresses = {"PUBLISHER": f"http://127.0.0.1:{port}", "JOB": f"http://127.0.0.1:{port}"}
    with publisher, Prometheus(tmp_path, {"publisher": [port]}) as prometheus:
        alert = partial(alerting, prometheus, variables=variables, addresses=addresses, dsn=outbox.dsn)
        outbox.batch(simple(1, keys=20))
        wait_until(lambda: drained(outbox.dsn), publisher.tail)
        wait_until(lambda: bool(prometheus.query("outbox_lane_held")), "the first metrics")
        quiet = {name for name, _ in prometheus.firing()} - {"OutboxJobDown"}
        wait_until(lambda: not _but_job_down(prometheus), lambda: f"{quiet}, {_but_job_down(prometheus)}")

        publisher.kill()
        outbox.batch(simple(2, keys=20))
        with alert("OutboxPublisherDown") as printed:
            assert "nobody" in printed["publisher status"], printed
            publisher.start()
        wait_until(lambda: drained(outbox.dsn), publisher.tail)

        outbox.batch({"c": [Session([b"3"], 20, topics=[missing])]})
        with alert("OutboxLaneStopped", "output_topic_missing") as printed, alert("OutboxLags"):
            assert "output_topic_missing" in printed["publisher status"]
            create_topics(kafka.bootstrap_servers, {missing: (1, {})})
        wait_until(lambda: drained(outbox.dsn), publisher.tail)

        outbox.batch({"b": [Session([b"x" * 2_000], 30, topics=[small])]})
        with alert("OutboxRowsParked", "too_large") as printed:
            assert "too_large" in printed["publisher parked list"]
            done = run_command("publisher", "parked", "discard", "--all", "--yes", variables=variables)
            assert done.returncode == 0, done.stderr

        other = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transactional.id": f"{topic}-other",
                "transaction.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(topic, b"in the way", partition=1)
        assert other.flush(30) == 0
        # Only a lane that opens looks for it.
        publisher.kill()
        publisher.start()
        outbox.batch(simple(4, keys=20))
        with alert("OutboxOpenTransaction") as printed:
            assert "open_transaction" in printed["publisher status"]
            other.abort_transaction(30)
        wait_until(lambda: drained(outbox.dsn), publisher.tail)

        for number in range(6, 10):
            take_transactional_ids(outbox.dsn, kafka.bootstrap_servers)
            outbox.batch(simple(number, keys=20))
            wait_until(lambda: drained(outbox.dsn), publisher.tail)
        with alert("OutboxFenced", "producer"):
            pass

        publisher.kill()
        with psycopg.connect(outbox.dsn) as holder:
            # A publisher that cannot take a lane is up, and delivers the others.
            holder.execute("SELECT FROM outbox.lane WHERE lane = 1 FOR UPDATE")
            publisher.start()
            outbox.batch(simple(10, keys=20))
            with alert("OutboxLaneAbandoned"):
                holder.rollback()
        wait_until(lambda: drained(outbox.dsn), publisher.tail)

        query(outbox.dsn, "UPDATE outbox.batch SET created_at = created_at - interval '1 hour'")
        with alert("OutboxRetentionBlocked"):
            outbox.batch(simple(11, keys=20))
        wait_until(lambda: drained(outbox.dsn), publisher.tail)

        own_postgres.stop()
        away = partial(alert, dsn=None)
        # Failures are most frequent at the beginning.
        with (
            away("OutboxLaneFails", "postgres"),
            away("OutboxPostgresUnreachable", "publisher") as printed,
            away("OutboxNotReady", "publisher"),
        ):
            assert "Postgres" in printed["publisher status"]
            assert asked(port, "healthz")[0] == 200
            own_postgres.start()
        wait_until(lambda: not _but_job_down(prometheus), lambda: str(_but_job_down(prometheus)))


def test_the_alert_about_a_progress_topic_that_nobody_can_read(
    database: str, own_kafka: Kafka, topic_prefix: str, tmp_path: Path, alerting: Any
) -> None:
    topic, port = f"{topic_prefix}events", free_port()
    create_topics(own_kafka.bootstrap_servers, {topic: (3, {})})
    outbox = Outbox(database, topic)
    settings = settings_for(outbox.dsn, own_kafka.bootstrap_servers)
    variables = variables_of(settings) | {
        "OUTBOX_METRICS__PORT": str(port),
        "OUTBOX_METRICS__REFRESH_S": "0.2",
    }
    publisher = publisher_service(settings, tmp_path / "publisher.log", variables)
    with publisher, Prometheus(tmp_path, {"publisher": [port]}) as prometheus:
        outbox.batch(simple(1, keys=20))
        wait_until(lambda: drained(outbox.dsn), publisher.tail)
        own_kafka.stop()
        outbox.batch(simple(2, keys=20))
        with alerting(
            prometheus,
            "OutboxProgressUnread",
            variables=variables,
            addresses={"PUBLISHER": f"http://127.0.0.1:{port}"},
            dsn=outbox.dsn,
        ):
            own_kafka.start()
        wait_until(lambda: drained(outbox.dsn), publisher.tail)


def take_transactional_ids(dsn: str, bootstrap: str) -> None:
    """As a publisher of another outbox would that has the same ids: the producers that had them are fenced."""
    for (lane_id,) in query(
        dsn,
        "SELECT i.transactional_id_prefix || '-' || i.outbox_uuid || '-' || l.epoch || '-' || l.lane"
        " FROM outbox.identity i, outbox.lane l",
    ):
        other = Producer({"bootstrap.servers": bootstrap, "transactional.id": lane_id, "log_level": 0})
        other.init_transactions(30)


def _but_job_down(prometheus: Prometheus) -> set[str]:
    """What fires, but for the job, which this test does not have."""
    return {name for name, _ in prometheus.firing()} - {"OutboxJobDown"}
