"""`publisher audit --consumed` proves the way from the outbox to a consumer's row, and finds what is missing on it."""
# ruff: noqa: S608  # names that stand here

import json
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from publisher.audit.findings import EXAMPLES, AuditReport
from service.errors import SettingsError, UnavailableError
from service.settings import Settings
from tests.support.consumer.consuming import consume_there, ends_of
from tests.support.consumer.program import EFFECTS
from tests.support.outbox.audits import counted, examples, failed, publisher_command, run_audit
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.queries import query
from tests.support.servers.input_topic import InputTopic
from tests.support.waiting import wait_until

Audit = Callable[[str], AuditReport]


@contextmanager
def own_database(postgres: PostgresServer) -> Iterator[str]:
    """DSN of an empty database of a consumer."""
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name)
    yield dsn
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def consumed(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, kafka: KafkaServer
) -> Iterator[str]:
    """DSN of a consumer that has consumed all 60 outputs."""
    with own_database(postgres) as dsn:
        with psycopg.connect(dsn) as connection:
            assert consume_there(connection, kafka.bootstrap_servers, "billing", delivered[1].topic) == 60
        yield dsn


@pytest.fixture
def copy(consumed: str, postgres: PostgresServer) -> Iterator[str]:
    """A copy of that consumer's database, to damage."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres.create_database(name, template=consumed.rpartition("/")[2])
    postgres.drop_database(name)


@pytest.fixture
def audit(delivered: tuple[Settings, Outbox], tmp_path: Path) -> Audit:
    return lambda consumer: run_audit(delivered[0], tmp_path, kafka=True, consumed=consumer)


def noted(report: AuditReport, name: str) -> int:
    return next(check.count for check in report.checks if check.name == name)


@pytest.mark.guarantee(127)
def test_a_consumer_that_has_consumed_everything_is_clean(audit: Audit, consumed: str) -> None:
    report = audit(consumed)
    assert failed(report) == {}
    assert counted(report, "outputs_consumed") == counted(report, "outputs_found") == 60
    assert (noted(report, "unconsumed"), noted(report, "set_aside")) == (0, 0)


SEEN = "outbox_consumer_seen"
FIRST, LAST = (f'"offset" = (SELECT {which}("offset") FROM {SEEN})' for which in ("min", "max"))
COPIED = f'INSERT INTO {SEEN} SELECT consumer, source, %s, output, revision, NULL, topic, partition, "offset", seen_at, retried FROM {SEEN}'
WRONG = {
    "not_consumed": (f"DELETE FROM {SEEN} WHERE {FIRST}", f"billing: {TOPIC_ID}/0/"),
    "consumed_undelivered": (f"{COPIED % 4} LIMIT 1", f"billing: {TOPIC_ID}/0/4/"),
    "consumed_twice": (
        f"ALTER TABLE {SEEN} DROP CONSTRAINT {SEEN}_key; {COPIED % 'end_offset'} LIMIT 1",
        f"billing: {TOPIC_ID}/0/",
    ),
    "consumed_order": (
        f"UPDATE {SEEN} SET seen_at = seen_at - interval '1 h' WHERE {LAST}",
        "was consumed before a lower offset",
    ),
}
"""Name of the check that finds it -> what a person did to a consumer's tables, and a part of what is told."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(audit: Audit, copy: str, name: str) -> None:
    change, words = WRONG[name]
    with psycopg.connect(copy) as connection:
        connection.execute(change.encode())
    report = audit(copy)
    assert failed(report) == {name: 1}
    assert words in examples(report, name)


def test_the_findings_of_several_consumers_share_one_list_of_examples(audit: Audit, copy: str) -> None:
    with psycopg.connect(copy) as connection:
        connection.execute(
            "CREATE TEMP TABLE another AS SELECT * FROM outbox_consumer_position; UPDATE another SET consumer = 'shipping';"
            f"INSERT INTO outbox_consumer_position SELECT * FROM another; DELETE FROM {SEEN}".encode()
        )
    report = audit(copy)
    assert failed(report) == {"not_consumed": 120}
    assert len(examples(report, "not_consumed").splitlines()) == EXAMPLES


def test_a_position_of_a_topic_that_is_gone_is_told(audit: Audit, copy: str) -> None:
    with psycopg.connect(copy) as connection:
        connection.execute("UPDATE outbox_consumer_position SET topic_id = 'other'")
    report = audit(copy)
    assert failed(report) == {"consumer_topics": 2}
    assert "its position is of another topic" in examples(report, "consumer_topics")


def test_what_is_set_aside_forgotten_or_waits_is_no_finding(audit: Audit, copy: str) -> None:
    changes = (
        (
            'INSERT INTO outbox_consumer_letter (consumer, topic, topic_id, partition, "offset", outbox_id, revision, headers, reason) '
            f"SELECT consumer, topic, topic_id, partition, \"offset\", source || '/' || end_offset || '/' || output, 0, '[]', 'x' "
            f"FROM {SEEN} JOIN outbox_consumer_position USING (consumer, topic, partition) WHERE {FIRST}"
        ),
        f"DELETE FROM {SEEN} WHERE {FIRST}",
        f"INSERT INTO outbox_consumer_forgotten SELECT consumer, source, min(end_offset) FROM {SEEN} GROUP BY 1, 2",
        f"DELETE FROM {SEEN} s USING outbox_consumer_forgotten f WHERE f.end_offset = s.end_offset",
        # It had been set aside, and `retry` has consumed it.
        f"UPDATE {SEEN} SET seen_at = seen_at + interval '1 h', retried = true WHERE {FIRST}",
        # The last one waits.
        f'UPDATE outbox_consumer_position p SET next_offset = s."offset" FROM {SEEN} s WHERE p.partition = s.partition AND {LAST}',
        f"DELETE FROM {SEEN} WHERE {LAST}",
    )
    with psycopg.connect(copy) as connection:
        for change in changes:
            assert connection.execute(change.encode()).rowcount > 0, change
    report = audit(copy)
    assert failed(report) == {}
    assert (noted(report, "set_aside"), noted(report, "unconsumed")) == (1, 1)
    assert counted(report, "forgotten_by_the_consumer") > 0


def test_copies_of_replays_and_reissues_are_told_apart_on_sqlite(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, tmp_path: Path
) -> None:
    path = tmp_path / "consumer.db"
    outbox.batch(simple(1, 4))
    deliver(settings)
    replayed = publisher_command(settings, "replay", "start", "--all", "--yes")
    assert replayed.returncode == 0, replayed.stderr
    outbox.batch(simple(1, 2), revision=1)
    deliver(settings)
    with closing(sqlite3.connect(path)) as connection:
        consume_there(connection, kafka.bootstrap_servers, f"{outbox.topic}-group", outbox.topic)
    result = publisher_command(settings, "audit", "--consumed", f"sqlite:///{path}", "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["clean"]) == (0, True), result.stdout
    found = report["counted"]
    assert (found["outputs_consumed"], found["replays_dropped"], found["records_superseded_by_reissue"]) == (
        12,
        6,
        12,
    )


def test_a_group_has_what_it_has_not_committed_by_partition(
    delivered: tuple[Settings, Outbox], audit: Audit, kafka: KafkaServer
) -> None:
    group = f"group-{uuid.uuid4().hex}"
    topic = delivered[1].topic
    ends = ends_of(kafka.bootstrap_servers, topic)
    # All outputs are in one of the two.
    (full,) = [partition for (_, partition), end in ends.items() if end > 0]
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})) as consumer:
        commits = [TopicPartition(topic, 1 - full, 0), TopicPartition(topic, full, ends[topic, full] // 2)]
        consumer.commit(offsets=commits, asynchronous=False)
    report = audit(group)
    assert failed(report) == {}
    (waiting,) = next(check.examples for check in report.checks if check.name == "unconsumed")
    assert waiting.startswith(f"{group}: {topic}[{full}]: ")
    assert noted(report, "unconsumed") > 0
    assert noted(report, "unconsumed") + counted(report, "records_below_the_position") == 60
    with pytest.raises(SettingsError, match="has committed no offset"):
        audit("nobody")


def test_what_a_topic_deleted_before_it_was_consumed_is_told(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, tmp_path: Path
) -> None:
    path = tmp_path / "consumer.db"
    outbox.batch(simple(1, 4))
    deliver(settings)
    with closing(sqlite3.connect(path)) as connection:
        consume_there(connection, kafka.bootstrap_servers, f"{outbox.topic}-group", outbox.topic)
    outbox.batch(simple(2, 4))
    deliver(settings)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    ends = ends_of(kafka.bootstrap_servers, outbox.topic)
    for answer in admin.delete_records([TopicPartition(*place, end) for place, end in ends.items()]).values():
        answer.result(60)
    report = run_audit(settings, tmp_path, kafka=True, consumed=f"sqlite:///{path}")
    assert list(failed(report)) == ["deleted_unconsumed"]
    assert "were deleted before they were consumed" in examples(report, "deleted_unconsumed")


@pytest.mark.parametrize("during", ["reading the topics back", "reading the outbox"])
def test_a_partition_that_is_added_during_the_audit_is_no_finding(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, tmp_path: Path, during: str
) -> None:
    path = tmp_path / "consumer.db"
    outbox.batch(simple(1, 4))
    deliver(settings)

    def add_partition(phase: str) -> None:
        if phase == during:
            InputTopic(kafka.bootstrap_servers, outbox.topic, 3).add_partitions(4)
            outbox.batch({"k0000": [Session([b"new"], end=200_099, partitions=[3])]})
            deliver(settings)
            consume()

    def consume() -> None:
        with closing(sqlite3.connect(path)) as connection:
            consume_there(connection, kafka.bootstrap_servers, f"{outbox.topic}-group", outbox.topic)

    consume()
    report = run_audit(settings, tmp_path, kafka=True, consumed=f"sqlite:///{path}", on_phase=add_partition)
    assert failed(report) == {}
    assert (counted(report, "outputs_consumed"), counted(report, "consumed_during_the_audit")) == (12, 1)


@pytest.mark.guarantee(127)
def test_a_consumer_that_is_killed_again_and_again_is_clean(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    for batch in range(1, 7):
        outbox.batch(simple(batch, 30))
    deliver(settings)
    group = f"{outbox.topic}-group"
    with own_database(postgres) as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(EFFECTS)
        for kill in range(1, 4):
            program = [
                sys.executable,
                "-m",
                "tests.support.consumer.program",
                dsn,
                kafka.bootstrap_servers,
                group,
                outbox.topic,
            ]
            # A short session: the next one is given the partitions of the killed one soon.
            with subprocess.Popen([*program, '{"session.timeout.ms": 6000}']) as process:
                before = kill * 50
                wait_until(lambda: query(dsn, "SELECT count(*) FROM effect")[0][0] > before, "some effects")  # noqa: B023
                process.send_signal(signal.SIGKILL)
        report = run_audit(settings, tmp_path, kafka=True, consumed=dsn)
        assert failed(report) == {}
        assert counted(report, "outputs_consumed") + noted(report, "unconsumed") == 540
        with psycopg.connect(dsn) as connection:
            consume_there(connection, kafka.bootstrap_servers, group, outbox.topic)
        report = run_audit(settings, tmp_path, kafka=True, consumed=dsn)
        assert (failed(report), counted(report, "outputs_consumed")) == ({}, 540)


def test_a_database_that_is_away_or_has_no_tables_is_no_finding(
    audit: Audit, postgres: PostgresServer, tmp_path: Path
) -> None:
    with own_database(postgres) as dsn, pytest.raises(SettingsError, match="without a position"):
        audit(dsn)
    with pytest.raises(UnavailableError, match="the consumer's database"):
        audit("postgresql://localhost:1/nobody")
    with pytest.raises(UnavailableError, match="the consumer's database cannot be read"):
        audit(f"sqlite:///{tmp_path / 'none.db'}")
