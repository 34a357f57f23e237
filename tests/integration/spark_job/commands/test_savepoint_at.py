"""`spark-job savepoint create --at`: a time of the input becomes a position of the ledger."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from db.connection import Connection
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.errors import SettingsError
from service.kafka.topic_ids import topic_id_text
from spark_job.cli import app
from spark_job.ledger import savepoints as savepoints
from tests.support.sink.batches import SinkRun, still_open

TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)


@dataclass
class Stand:
    """Partition 0 has a record a minute from ten o'clock on; partition 1 has two of nine o'clock. Three batches have read them."""

    dsn: str
    connection: Connection
    topic: str
    topic_id: str

    def read(self, topic_id: str) -> None:
        """Let the outbox have read a topic of that id."""
        sink_run = SinkRun(self.connection, topic=(self.topic, topic_id))
        for number, (start, end) in enumerate([((0, 0), (10, 1)), ((10, 1), (20, 2)), ((20, 2), (30, 2))]):
            sink_run.plan(number, start, end)
            sink_run.write(number, still_open(0, end[0] - 1), still_open(1))


@pytest.fixture
def stand(
    database: str,
    connection: Connection,
    kafka: KafkaServer,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Stand:
    topic = f"{topic_prefix}in"
    create_topics(kafka.bootstrap_servers, {topic: (2, {})})
    quiet: dict[str, str | int | float | bool] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "log_level": 0,
    }
    producer = Producer(quiet)
    for partition, minutes in [(0, number) for number in range(30)] + [(1, -60), (1, -60)]:
        at = TEN + timedelta(minutes=minutes)
        producer.produce(topic, b"x", partition=partition, timestamp=round(at.timestamp() * 1000))
    producer.flush()
    admin = AdminClient(quiet)
    found = admin.describe_topics(TopicCollection([topic]))[topic].result()
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", f"{database}?options=-c%20role%3Doutbox_writer")
    monkeypatch.setenv("OUTBOX_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("OUTBOX_SOURCE__TOPICS", json.dumps([topic]))
    return Stand(database, connection, topic, topic_id_text(found.topic_id))


def create(*arguments: str) -> str:
    """Run it; raises what it explains."""
    done = CliRunner().invoke(app, ["savepoint", "create", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_it_is_the_newest_batch_before_the_time_and_is_shown_and_stored(stand: Stand) -> None:
    stand.read(stand.topic_id)
    topic = stand.topic
    said = create("x", "--at", "2026-11-24T11:25:00+01:00")
    assert said.splitlines() == [
        "savepoint 'x': generation 1, batch 2",
        f"It has read nothing of 2026-11-24T10:25:00Z or later, and ends at {topic}/0: 20, {topic}/1: 2",
        f"Without a record of then or later: {topic}/1",
    ]
    exactly = json.loads(create("y", "--at", "2026-11-24T10:20:00Z", "--json"))
    assert (exactly["batch"], exactly["at"]) == (2, "2026-11-24T10:20:00Z")
    assert json.loads(create("z", "--at", "2026-11-24T10:19:00Z", "--json"))["batch"] == 1
    assert [each.batch_id for each in savepoints.all(stand.connection)] == [2, 2, 1]
    with psycopg.connect(stand.dsn, autocommit=True) as owner:
        asked = owner.execute(
            "SELECT arguments FROM outbox.operation ORDER BY operation_id LIMIT 1"
        ).fetchone()
    assert asked == ({"name": "x", "at": "2026-11-24T10:25:00Z"},)
    with pytest.raises(SettingsError, match="--at 'ten' is neither a time"):
        create("v", "--at", "ten")


def test_of_a_topic_that_was_made_again_no_time_is_known(stand: Stand) -> None:
    stand.read("another id")
    with pytest.raises(SettingsError, match=f"input topic '{stand.topic}' was deleted and created again"):
        create("x", "--at", "2026-11-24T10:25:00Z")
    assert savepoints.all(stand.connection) == []
    assert create("x").startswith("savepoint 'x': generation 1, batch 3")
