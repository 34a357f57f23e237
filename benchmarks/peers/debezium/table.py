"""Debezium's outbox table with the publisher's events: the same topic, key, value and id, one row for each event."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from benchmarks.support.outbox import EVENTS, PARTITIONS, ROWS_PER_BATCH, TOPIC_ID, VALUE_BYTES
from devstack.stack import Stack
from devstack.topics import create_topics

_TABLE = """
CREATE TABLE public.outbox (
    id text PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload bytea NOT NULL)
"""
_ROWS = """
INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload)
SELECT %(id)s::text || '/0/' || n::bigint * 102 + 101 || '/' || e - 1, %(topic)s::text, 'session-' || lpad(n::text, 10, '0'), 'output',
       convert_to(left(repeat(md5(n || '/' || e), 6), %(bytes)s::int), 'UTF8')
FROM generate_series(%(first)s::int, %(last)s::int) n, generate_series(1, %(events)s::int) e
ORDER BY n, e
"""
_DROP_SLOTS = (
    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
)


@dataclass
class DebeziumTable:
    """The table in a database of its own, and the topic that its events go to."""

    dsn: str
    topic: str
    sessions: int = 0

    def insert(self, sessions: int) -> None:
        """Commit so many sessions, in transactions as large as a batch of the job."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for first in range(self.sessions, self.sessions + sessions, ROWS_PER_BATCH):
                last = min(first + ROWS_PER_BATCH, self.sessions + sessions) - 1
                connection.execute(_ROWS, self._parameters(first, last))
        self.sessions += sessions

    def commit_one(self, connection: psycopg.Connection[tuple[object, ...]]) -> int:
        """Commit one session; return its number."""
        with connection.transaction():
            connection.execute(_ROWS, self._parameters(self.sessions, self.sessions))
        self.sessions += 1
        return self.sessions - 1

    def _parameters(self, first: int, last: int) -> dict[str, object]:
        return {
            "id": TOPIC_ID,
            "topic": self.topic,
            "bytes": VALUE_BYTES,
            "events": EVENTS,
            "first": first,
            "last": last,
        }


@contextmanager
def debezium_table(stack: Stack) -> Iterator[DebeziumTable]:
    """An empty table on these servers; its database and slots are dropped at the end, when no connector uses them any more.

    Raises SystemExit where Postgres does not write what logical decoding needs.
    """
    name = f"debezium_{uuid.uuid4().hex[:12]}"
    create_topics(stack.kafka.bootstrap_servers, {name: (PARTITIONS, APPEND_TIME)})
    dsn = stack.create_database(name)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            level = connection.execute("SHOW wal_level").fetchone()
            if level != ("logical",):
                raise SystemExit(f"Debezium needs Postgres with wal_level = logical; this one has {level}")
            connection.execute(_TABLE)
        yield DebeziumTable(dsn, name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_DROP_SLOTS)
        stack.drop_database(name)


APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
"""Settings of a topic whose records carry the moment at which the broker had them."""
LOGICAL = {"wal_level": "logical"}
"""Settings of a Postgres that Debezium reads from."""
