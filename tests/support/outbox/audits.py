"""Outboxes that were delivered, to damage and audit."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from db.connection import connect
from devstack.databases import PostgresServer
from devstack.topics import create_topics
from publisher.audit.audit import AuditRequest, audit
from publisher.audit.findings import AuditReport
from publisher.audit.scope import Limits
from service.settings import Settings
from tests.support.outbox.batches import Outbox, read_offsets, simple
from tests.support.outbox.deliveries import deliver
from tests.support.processes.commands import run_command
from tests.support.processes.environment import variables_of
from tests.support.processes.publishers import settings_for


def run_audit(
    settings: Settings,
    folder: Path,
    *,
    kafka: bool = False,
    limits: Limits = Limits(),  # noqa: B008 - it never changes
    state: Path | None = None,
    consumed: str | None = None,
    archive: bool = False,
    on_phase: Callable[[str], None] = lambda _: None,
) -> AuditReport:
    """What `publisher audit` does, without its command line. `on_phase` is called with the name of each phase that begins."""

    def phase(name: str, _steps: int) -> Callable[[int], None]:
        on_phase(name)
        return lambda _: None

    request = AuditRequest(limits, kafka, state, folder / "lost-keys.txt", consumed, archive)
    with connect(settings.postgres, "audit test", autocommit=True) as connection:
        return audit(connection, settings, request, phase)


def failed(report: AuditReport) -> dict[str, int]:
    """Name and count of each check that failed."""
    return {check.name: check.count for check in report.checks if check.failed}


def examples(report: AuditReport, name: str) -> str:
    """The examples of a check, a line each."""
    return "\n".join(next(check.examples for check in report.checks if check.name == name))


def fill(outbox: Outbox, batches: int = 4, keys: int = 5) -> None:
    """Batches of the same few keys, three events each."""
    for batch in range(1, batches + 1):
        outbox.batch(simple(batch, keys))


@contextmanager
def copy_of(postgres: PostgresServer, settings: Settings) -> Iterator[Settings]:
    """A copy of a delivered outbox, to damage: the topics and the uuid are the original's."""
    name = f"test_{uuid.uuid4().hex}"
    original = settings.postgres.database()
    dsn = postgres.create_database(name, template=original)
    try:
        yield settings_for(dsn, settings.kafka.bootstrap_servers)
    finally:
        postgres.drop_database(name)


def damage(settings: Settings, *statements: str) -> None:
    """Run SQL as the owner, each of which must change something."""
    with psycopg.connect(settings.postgres.dsn.get_secret_value(), autocommit=True) as connection:
        for sql in statements:
            assert connection.execute(sql).rowcount > 0, f"it changed nothing: {sql}"


def send(
    settings: Settings, topic: str, *records: tuple[bytes, bytes | None, list[tuple[str, bytes]], int]
) -> None:
    """Produce records (key, value, headers, partition) behind the publisher's back."""
    producer = Producer({"bootstrap.servers": settings.kafka.bootstrap_servers, "log_level": 0})
    for key, value, headers, partition in records:
        producer.produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(60) == 0


def row(change: str, batch_id: int, key: str) -> str:
    """SQL that changes a row."""
    return f"UPDATE outbox.session_output SET {change} WHERE batch_id = {batch_id} AND session_key = '{key}'"  # noqa: S608


TWICE = ", ".join(
    f"session_{name} = session_{name} || session_{name}"
    for name in ("topic_ids", "partitions", "starts", "started_ms", "ended_ms", "events")
)
"""What a change needs that gives a row of one session a second one."""


@contextmanager
def delivered_outbox(
    postgres: PostgresServer, template: str, bootstrap: str
) -> Iterator[tuple[Settings, Outbox]]:
    """Four batches of five keys that two lanes have delivered to a topic of two partitions."""
    name, topic = f"test_{uuid.uuid4().hex}", f"test-{uuid.uuid4().hex}"
    dsn = postgres.create_database(name, template=template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE outbox.identity SET outbox_uuid = gen_random_uuid()")
    create_topics(bootstrap, {topic: (2, {})})
    outbox = Outbox(dsn, topic)
    settings = settings_for(dsn, bootstrap, transaction_sessions=2)
    fill(outbox)
    read_offsets(dsn)
    deliver(settings)
    yield settings, outbox
    postgres.drop_database(name)


NEVER_SENT = (
    f"{TWICE}, session_ends = session_ends || ARRAY[7::bigint], session_outputs = session_outputs || ARRAY[1],"
    """ topics = topics || topics[1], "values" = "values" || 'never sent'::bytea"""
)
"""What a change needs that gives a row of one session one more, whose output counts as delivered."""


def publisher_command(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `publisher` as people do."""
    return run_command("publisher", *arguments, variables=variables_of(settings))


def counted(report: AuditReport, name: str) -> int:
    """One of the numbers of a report."""
    return report.counted.get(name, 0)
