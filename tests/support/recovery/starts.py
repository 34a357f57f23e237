"""A job that starts over an outbox, and stops at once: what Kafka says to it, and what it has recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from psycopg.rows import dict_row

from db.connection import Connection
from service.settings import Settings
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger import generations, ownership, requests, runs
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartition
from spark_job.ledger.requests import JobRequest
from spark_job.recovery.findings import AcceptedRisks
from spark_job.recovery.start import Start, Started
from tests.support.reference.tombstones import tombstones
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun

MOST = 1_000
TOMBSTONES = tombstones(large=70)
OPEN = OpenPartition(40, 2, 4, 20, "3-digest of [40, 60]", TOMBSTONES)
ADDED = TopicPartition(TOPIC_ID, 2)
OUTPUT = [OutputEvent("out", b"1")]


def settings(**changed: Any) -> Settings:
    """Of a job that reads one topic."""
    return Settings.model_validate(
        {
            "postgres": {"dsn": "postgresql://localhost/unused"},
            "kafka": {"bootstrap_servers": "unused:9092"},
            "source": {"topics": ["input"]},
            "job": {"max_events_per_batch": MOST},
        }
        | changed
    )


@dataclass
class Input:
    """What Kafka says. It answers as `input.topics.KafkaInput` does."""

    ids: Mapping[str, str] = field(default_factory=lambda: {"input": TOPIC_ID})
    earliest: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 0, P1: 0})
    latest: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 500, P1: 500})
    readable: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 490, P1: 500})
    times: Mapping[TopicPartition, Mapping[datetime, int]] = field(default_factory=dict)
    """{partition: {time: the first record of then or later}}"""

    def bounds(self, _topics: InputTopics, where: str) -> Offsets:
        return Offsets({"earliest": self.earliest, "latest": self.latest, "readable": self.readable}[where])

    def first_at(self, _topics: InputTopics, at: datetime) -> Offsets:
        return Offsets({where: found[at] for where, found in self.times.items() if at in found})


def leave(sink_run: SinkRun, because: str = runs.STOPPED) -> None:
    """End the run."""
    runs.end(sink_run.connection, sink_run.run_id, because)
    ownership.give_back(sink_run.connection, sink_run.run_id)


def start(
    connection: Connection,
    kafka: Input | None = None,
    *accepted: str,
    of: Settings | None = None,
    request: JobRequest | None = None,
    take_over: bool = False,
    former: tuple[UUID, ...] = (),
    attempt: int = 1,
) -> Started:
    """Start a job; it stops at once. `accepted`: names of `Accepted`."""
    kafka = kafka or Input()
    run_id = uuid4()
    begin = Start(
        of or settings(),
        run_id,
        attempt,
        "transform",
        AcceptedRisks(**dict.fromkeys(accepted, True)),
        take_over,
        request,
        former,
    )
    partitions = {
        topic: [where.partition for where in kafka.latest if where.topic_id == topic_id]
        for topic, topic_id in kafka.ids.items()
    }
    begun = begin.run(connection, kafka, InputTopics(kafka.ids, partitions))  # type: ignore[arg-type]
    assert ownership.read_owner(connection).run_id == run_id
    runs.end(connection, run_id, runs.STOPPED)
    ownership.give_back(connection, run_id)
    return begun


def run_row(connection: Connection) -> dict[str, Any]:
    """The newest start, as it was recorded."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT * FROM outbox.run ORDER BY number DESC LIMIT 1").fetchone()
    assert row is not None
    return row


def newest(connection: Connection) -> Generation:
    found = generations.newest_generation(connection)
    assert found is not None
    return found


def begins_at(
    generation: Generation,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, OpenPartition]]:
    """Its offsets, and what is open there."""
    return dict(generation.start), dict(generation.open)


def everything(connection: Connection) -> list[Any]:
    """What a refused start must leave as it was."""
    tables = ("generation", "run", "writer", "lane_epoch", "savepoint", "batch")
    return [
        connection.execute(f"SELECT * FROM outbox.{table} ORDER BY 1").fetchall()  # noqa: S608
        for table in tables
    ]


def ask(connection: Connection, **arguments: Any) -> JobRequest:
    run_id = uuid4()
    return JobRequest(requests.ask(connection, run_id, "restore", arguments), run_id, "restore", arguments)
