"""A synthetic outbox for measuring the publisher alone: rows as the job writes them, and a bare producer to compare with."""

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from confluent_kafka import Producer
from pydantic import SecretStr

from db.migrate import upgrade
from db.statements import queries
from devstack.stack import Stack
from devstack.topics import create_topics
from publisher.kafka.clients import lane_producer
from service.settings import KafkaSettings, PostgresSettings, PublisherSettings, Settings

_LEDGER = queries("spark_job", "ledger")

BARE = "bare producer"
"""The contender that holds the same bytes in memory."""
EVENTS = 20
VALUE_BYTES = 178
TOPIC_ID = "A" * 22
PARTITIONS = 4
ROWS_PER_BATCH = 4_000

_ROWS = """
INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
    session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
SELECT 'session-' || lpad(n::text, 10, '0'), %(first_batch)s + (n - %(first)s) / %(rows_per_batch)s, n %% %(lanes)s, 0, ARRAY[%(id)s],
       ARRAY[0], ARRAY[n::bigint * 102], ARRAY[n::bigint * 102 + 101], ARRAY[0], ARRAY[1500], ARRAY[102], ARRAY[%(events)s],
       array_fill(%(topic)s::text, ARRAY[%(events)s]),
       ARRAY(SELECT convert_to(left(repeat(md5(n || '/' || e), 6), %(bytes)s), 'UTF8') FROM generate_series(1, %(events)s) e)
FROM generate_series(%(first)s, %(first)s + %(rows)s - 1) n
"""
_BATCHES = """
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state, transform_fingerprint)
SELECT b, 'stream', 1, b, gen_random_uuid(), '{}', '{}', '{}', 'bench'
FROM generate_series(%(first_batch)s, %(first_batch)s + (%(rows)s - 1) / %(rows_per_batch)s) b
"""
_GENERATION = """
INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id)
VALUES (1, '{}', '{}', 'first', 'skip', '{}', gen_random_uuid())
"""
_LANES = "INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (1, 1, %(lanes)s)"


@dataclass
class SyntheticOutbox:
    """An outbox in a database of its own, with an output topic for the publisher and one for the bare producer."""

    settings: Settings
    topic: str
    bare_topic: str
    lanes: int
    rows: int = 0
    batches: int = 0

    @property
    def dsn(self) -> str:
        """Address of the database."""
        return self.settings.postgres.dsn.get_secret_value()

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    def hide(self, rows: int) -> "Hidden":
        """Write rows without their ledger rows: no publisher sees them before `Hidden.show`."""
        parameters = _parameters(self.topic, rows, self.lanes, first=self.rows, first_batch=self.batches + 1)
        with self.connect() as connection:
            connection.execute(
                "SELECT outbox.ensure_partitions(%(first_batch)s, %(first_batch)s)", parameters
            )
            connection.execute(_ROWS, parameters)
            connection.execute("VACUUM ANALYZE outbox.session_output")
        self.rows += rows
        self.batches += 1 + (rows - 1) // ROWS_PER_BATCH
        return Hidden(self, parameters)

    def commit(self, connection: psycopg.Connection[tuple[object, ...]], rows: int = 1) -> int:
        """Commit a batch of so many sessions, as the job does; return the number of the first."""
        parameters = _parameters(self.topic, rows, self.lanes, first=self.rows, first_batch=self.batches + 1)
        lanes = {number % self.lanes for number in range(self.rows, self.rows + rows)}
        told = {"batch_id": self.batches + 1, "lanes": ",".join(map(str, sorted(lanes)))}
        with connection.transaction():
            connection.execute(_ROWS, parameters)
            connection.execute(_BATCHES, parameters)
            connection.execute(_LEDGER["notify_batch"], told)
        self.rows += rows
        self.batches += 1
        return self.rows - rows

    def bare_producer(self) -> Producer:
        """A producer configured as a lane's, initialised."""
        return bare_producer(self.settings.kafka)


@dataclass(frozen=True)
class Hidden:
    """Rows that wait for their ledger."""

    outbox: SyntheticOutbox
    parameters: dict[str, object]

    def show(self) -> None:
        """Commit their ledger rows."""
        with self.outbox.connect() as connection, connection.transaction():
            connection.execute(_BATCHES, self.parameters)
            connection.execute("NOTIFY outbox_batch")


@contextmanager
def synthetic_outbox(
    stack: Stack,
    lanes: int,
    publisher: PublisherSettings,
    topic_settings: Mapping[str, str] | None = None,
) -> Iterator[SyntheticOutbox]:
    """An empty outbox on these servers; its database is dropped at the end."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    bootstrap = stack.kafka.bootstrap_servers
    topics = (f"{name}-relay", f"{name}-bare")
    create_topics(bootstrap, {topic: (PARTITIONS, topic_settings or {}) for topic in topics})
    dsn = stack.create_database(name)
    try:
        _prepare(dsn, lanes)
        # Built without the environment, which would win and may name the servers of the run.
        settings = Settings.model_construct(
            postgres=PostgresSettings(dsn=SecretStr(dsn)),
            kafka=KafkaSettings(bootstrap_servers=bootstrap),
            publisher=publisher,
        )
        yield SyntheticOutbox(settings, *topics, lanes)
    finally:
        stack.postgres.drop_database(name)


def _prepare(dsn: str, lanes: int) -> None:
    upgrade(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_GENERATION)
        connection.execute(_LANES, {"lanes": lanes})


def _parameters(topic: str, rows: int, lanes: int, *, first: int, first_batch: int) -> dict[str, object]:
    return {
        "first": first,
        "first_batch": first_batch,
        "rows": rows,
        "rows_per_batch": ROWS_PER_BATCH,
        "lanes": lanes,
        "topic": topic,
        "events": EVENTS,
        "bytes": VALUE_BYTES,
        "id": TOPIC_ID,
    }


def bare_producer(kafka: KafkaSettings) -> Producer:
    """A producer configured as a lane's, initialised."""
    producer = lane_producer(kafka, f"bare-{uuid.uuid4()}", 60_000, None)
    producer.init_transactions(30)
    return producer


def values_of(n: int) -> list[bytes]:
    """The values of session `n`, as `_ROWS` makes them."""
    return [value_of(n, index) for index in range(EVENTS)]


def value_of(n: int, index: int) -> bytes:
    """One of them; the first has index 0."""
    return (hashlib.md5(b"%d/%d" % (n, index + 1)).hexdigest() * 6).encode()[:VALUE_BYTES]


def produce_bare(producer: Producer, topic: str, n: int, values: list[bytes]) -> None:
    """Produce session `n` with a plain loop: the values, key and `outbox-id` headers of the outbox's row."""
    key = b"session-%010d" % n
    end = n * 102 + 101
    produce = producer.produce
    for index, value in enumerate(values):
        produce(topic, value, key, -1, None, None, 0, [("outbox-id", b"%s/0/%d/%d" % (_ID, end, index))])


_ID = TOPIC_ID.encode()


def wait_for_lanes(outbox: SyntheticOutbox, holders: int, timeout_s: float) -> int:
    """Wait until every lane is held, and for `timeout_s` that by so many holders; return how many they are."""
    deadline = time.monotonic() + timeout_s
    query = "SELECT count(*), count(DISTINCT lease_holder) FROM outbox.lane WHERE lease_holder IS NOT NULL"
    with outbox.connect() as connection:
        while True:
            held, found = connection.execute(query).fetchone() or (0, 0)
            if held == outbox.lanes and (found == holders or time.monotonic() > deadline):
                return int(str(found))
            if time.monotonic() > deadline + 60:
                raise SystemExit(f"only {held} of {outbox.lanes} lanes are held after a minute")
            time.sleep(0.05)
