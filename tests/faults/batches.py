"""Batches for a real outbox without Spark: each must be there once and whole, whatever happens to Postgres while it is written."""

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from pydantic import SecretStr

from db.connection import connect
from db.errors import OutboxError
from db.settings import PostgresSettings
from spark_job import OutputEvent
from spark_job.failures import explain
from spark_job.sink import Committed
from tests.integration.job.sink_world import Row, World, letter, session, summary

Connection = psycopg.Connection[TupleRow]

SESSIONS, OUTPUT_BYTES = 20, 20_000


def settings(dsn: str, **options: int) -> PostgresSettings:
    """As the job connects: with the writer's privileges and no more."""
    as_writer = PostgresSettings(dsn=SecretStr(make_conninfo(dsn, options="-c role=outbox_writer")))
    return as_writer.model_copy(update=options)


def connected(dsn: str, **options: int) -> Connection:
    return connect(settings(dsn, **options), "spark-job", autocommit=True)


class Batches:
    """Batches of one generation, each with sessions, outputs, a dead letter and a summary of its own; the outbox must have each once."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        with connected(dsn) as connection:
            self._world = World(connection)
        self.written = 0

    def write(self, connection: Connection) -> Committed | None:
        """Let a sink on this connection write the next batch, as Spark would after a start: the same one until it is there."""
        number = self.written
        self._world.plan(number, (number * 100, 0), (number * 100 + 100, 0))
        return self._world.write(number, *rows(number), sink=self._world.new_sink(connection))

    def fail(self, connection: Connection) -> OutboxError:
        """Let the write fail; return what the job would end with. Nothing but the whole batch may be there then."""
        with pytest.raises((psycopg.Error, OutboxError)) as caught:
            self.write(connection)
        self.assert_whole()
        return explain(caught.value)

    def go_on(self) -> Committed | None:
        """Write the batch on a new connection, as the next start does. None: it was there already."""
        with connected(self._dsn) as connection:
            committed = self.write(connection)
        self.written += 1
        self.assert_whole()
        assert self.stored() == self.written
        return committed

    def stored(self) -> int:
        """Batches in the ledger."""
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute("SELECT count(*) FROM outbox.batch").fetchone()
        assert row is not None
        return int(row[0])

    def assert_whole(self) -> None:
        """Fail when anything of a batch is there without all of it."""
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute(
                """
                SELECT (SELECT count(*) FROM outbox.batch), (SELECT count(*) FROM outbox.session_output),
                       (SELECT count(*) FROM outbox.dead_letter), (SELECT coalesce(max(batch_id), 0) FROM outbox.bucket)
                """
            ).fetchone()
        assert found is not None
        batches, sessions, letters, newest = found
        assert (sessions, letters, newest) == (batches * SESSIONS, batches, batches)
        assert batches in (self.written, self.written + 1)


def rows(number: int) -> list[Row]:
    first = number * 100
    outputs = [OutputEvent("t", bytes([65 + number % 26]) * OUTPUT_BYTES)]
    return [
        *(session(f"key-{n}", first + 2 * n, first + 2 * n + 1, outputs) for n in range(SESSIONS)),
        letter("lost", first + 90, first + 95, "timed_out"),
        summary(0, {}),
    ]
