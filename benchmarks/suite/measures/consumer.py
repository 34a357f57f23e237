"""What exactly once costs a consumer: `outbox_consumer` into Postgres, beside the same inserts of a bare consumer, and one that only reads.

All read the same topic from its beginning, `read_committed`. The speed counts from the first output to the last commit.
"""

import time
from collections.abc import Callable
from contextlib import closing
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, Message

from benchmarks.support.outbox import EVENTS, PARTITIONS, bare_producer, produce_bare, values_of
from benchmarks.support.servers import Servers
from devstack.topics import create_topics
from outbox_consumer import consume
from service.settings import KafkaSettings

TITLE = "Consuming a topic"
LABELS = {"rate": "events/s", "seconds": "seconds", "cpu": "CPU of an event in the consumer, us"}
_TRANSACTION_SESSIONS = 250
_AT_ONCE = 500
_SILENCE_S = 60.0
_TABLE = "CREATE TABLE effect (id text PRIMARY KEY, body bytea)"
_EFFECT = "INSERT INTO effect (id, body) VALUES (%s, %s)"

Connection = psycopg.Connection[tuple[object, ...]]


class Clock:
    """Counts outputs, and the time and CPU from the first one on."""

    def __init__(self) -> None:
        self.events = 0
        self._began = self._cpu = 0.0

    def count(self) -> None:
        """Note an output."""
        if not self.events:
            self._began, self._cpu = time.perf_counter(), time.process_time()
        self.events += 1

    def measured(self) -> dict[str, float]:
        """Return what it took up to now."""
        took_s, cpu_s = time.perf_counter() - self._began, time.process_time() - self._cpu
        return {"rate": self.events / took_s, "seconds": took_s, "cpu": 1e6 * cpu_s / self.events}


def fill(servers: Servers, events: int) -> str:
    """Make a topic of that many outputs at least, in transactions as a lane's; return its name."""
    topic = f"outputs-{uuid4().hex[:12]}"
    create_topics(servers.bootstrap_servers, {topic: (PARTITIONS, {})})
    producer = bare_producer(KafkaSettings(bootstrap_servers=servers.bootstrap_servers))
    sessions = -(-events // EVENTS)
    for first in range(0, sessions, _TRANSACTION_SESSIONS):
        producer.begin_transaction()
        for n in range(first, min(first + _TRANSACTION_SESSIONS, sessions)):
            produce_bare(producer, topic, n, values_of(n))
        producer.commit_transaction()
    return topic


def _ours(connection: Connection, kafka: dict[str, object], topic: str, events: int) -> dict[str, float]:
    clock = Clock()
    for output in consume(connection, kafka, [topic], stop=lambda: clock.events >= events):
        clock.count()
        with output:
            connection.execute(_EFFECT, (str(output.outbox_id), output.value))
    return clock.measured()


def _bare(connection: Connection, kafka: dict[str, object], topic: str, events: int) -> dict[str, float]:
    return _consumed(kafka, topic, events, None)


def _inserting(connection: Connection, kafka: dict[str, object], topic: str, events: int) -> dict[str, float]:
    """At least once: the offsets are committed after the rows."""
    return _consumed(kafka, topic, events, connection)


CONTENDERS: dict[str, Callable[[Connection, dict[str, object], str, int], dict[str, float]]] = {
    "ours": _ours,
    "bare consumer, the same inserts": _inserting,
    "bare consumer, reads only": _bare,
}


def measure(servers: Servers, contender: str, topic: str, events: int) -> dict[str, float]:
    """Consume the topic's outputs with a group and a database of its own. Raises RuntimeError where it did not get all of them."""
    name = f"consumer_{uuid4().hex[:12]}"
    dsn = servers.stack.create_database(name)
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute(_TABLE)
            connection.commit()
            kafka: dict[str, object] = {"bootstrap.servers": servers.bootstrap_servers, "group.id": name}
            found = CONTENDERS[contender](connection, kafka, topic, events)
            ((effects,),) = connection.execute("SELECT count(*) FROM effect").fetchall()
    finally:
        servers.stack.postgres.drop_database(name)
    if contender != "bare consumer, reads only" and effects != events:
        raise RuntimeError(f"{contender}: {effects} effects of {events} outputs")
    return found


def expected_s(events: int) -> float:
    """Return how long a round takes."""
    return 10 + events / 10_000


def _consumed(
    kafka: dict[str, object], topic: str, events: int, connection: Connection | None
) -> dict[str, float]:
    clock = Clock()
    options = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    with closing(Consumer(kafka | options)) as consumer:
        consumer.subscribe([topic])
        moved = time.monotonic()
        while clock.events < events:
            messages = consumer.consume(_AT_ONCE, 0.1)
            for message in messages:
                if (error := message.error()) is not None:
                    raise RuntimeError(f"{topic}: {error}")
                clock.count()
                if connection is not None:
                    connection.execute(_EFFECT, (_outbox_id(message), message.value()))
            if messages:
                moved = time.monotonic()
                if connection is not None:
                    connection.commit()
                consumer.commit(asynchronous=False)
            elif time.monotonic() - moved > _SILENCE_S:
                raise RuntimeError(
                    f"{topic}: nothing came for {_SILENCE_S:g} s after {clock.events} of {events} outputs"
                )
        return clock.measured()


def _outbox_id(message: Message) -> str:
    value = dict(message.headers() or [])["outbox-id"]
    assert isinstance(value, bytes)
    return value.decode()
