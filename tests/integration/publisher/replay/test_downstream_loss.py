"""A consumer's database is lost after its topic has deleted records, and comes back exactly: docs/replay.md, "After a downstream loss"."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from devstack.kafka import KafkaServer
from outbox_consumer import Output
from publisher.audit.findings import AuditReport
from service.settings import Settings
from tests.support.consumer.consuming import consume_there, ends_of
from tests.support.outbox.audits import counted, failed, run_audit
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import replayed

BALANCE = "CREATE TABLE IF NOT EXISTS balance (key BLOB PRIMARY KEY, newest BLOB, changes INTEGER)"


def apply(connection: Any, output: Output) -> None:
    """An effect that goes wrong when an output comes twice, or in another order."""
    connection.execute(
        "INSERT INTO balance VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET newest = excluded.newest, changes = changes + 1",
        (output.key, output.value),
    )


def test_a_lost_database_comes_back_exactly(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, tmp_path: Path
) -> None:
    group, live, refill = f"{outbox.topic}-group", outbox.topic, f"{outbox.topic}-refill"

    def consume(path: Path, topic: str) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(BALANCE)
            connection.commit()
            consume_there(connection, kafka.bootstrap_servers, group, topic, apply=apply)

    def balance(path: Path) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT * FROM balance ORDER BY key").fetchall()

    def audit(path: Path) -> AuditReport:
        return run_audit(settings, tmp_path, kafka=True, consumed=f"sqlite:///{path}")

    def unconsumed(report: AuditReport) -> int:
        return next(check.count for check in report.checks if check.name == "expired_unconsumed")

    lost, new = tmp_path / "lost.db", tmp_path / "new.db"
    for batch in range(1, 4):
        outbox.batch(simple(batch, 5) | {"account": [Session([b"%d" % batch], 7_000 + batch)]})
    deliver(settings)
    consume(lost, live)
    # Retention deletes the beginning, and there are newer outputs.
    ends = ends_of(kafka.bootstrap_servers, live)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    # All but the marker of the last transaction, which a consumer that has just stopped need not have passed.
    below = [TopicPartition(*place, end - 1) for place, end in ends.items() if end]
    for answer in admin.delete_records(below).values():
        answer.result(60)
    outbox.batch(simple(4, 5) | {"account": [Session([b"4"], 7_004)]})
    deliver(settings)
    consume(lost, live)
    wanted = balance(lost)
    assert (b"account", b"4", 4) in wanted

    # Nothing of it is left. The topic alone does not bring it back, as the audit says.
    half = tmp_path / "half.db"
    consume(half, live)
    assert balance(half) != wanted
    assert unconsumed(audit(half)) == 48

    replayed(settings, "start", "--topic", live, "--all", "--to-topic", refill, "--create-topics", "--yes")
    consume(new, refill)
    consume(new, live)
    assert balance(new) == wanted
    report = audit(new)
    assert (failed(report), unconsumed(report)) == ({}, 0)
    assert counted(report, "outputs_consumed") == 64
    # It goes on as ever.
    outbox.batch({"account": [Session([b"5"], 7_005)]})
    deliver(settings)
    consume(new, live)
    assert (b"account", b"5", 5) in balance(new)
