"""Batches for a real outbox without Spark: each must be there once and whole, whatever happens to Postgres while it is written."""

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from db.connection import Connection, connect
from service.errors import OutboxError
from service.settings import PostgresSettings
from spark_job import OutputEvent
from spark_job.failures.explain import explain
from spark_job.ledger import position
from spark_job.sink.commit import CommittedBatch
from tests.support.sink.batches import Row, SinkRun, letter, session

SESSIONS, OUTPUT_BYTES = 20, 20_000


def settings(dsn: str, **options: int) -> PostgresSettings:
    """As the job connects: with the writer's privileges and no more."""
    as_writer = PostgresSettings(dsn=SecretStr(make_conninfo(dsn, options="-c role=outbox_writer")))
    return as_writer.model_copy(update=options)


def connected(dsn: str, **options: int) -> Connection:
    return connect(settings(dsn, **options), "spark-job", autocommit=True)


class Batches:
    """Batches of one generation, each with sessions, outputs and a dead letter; the outbox must have each once."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        with connected(dsn) as connection:
            self._sink_run = SinkRun(connection)
        self.written = 0

    def write(self, connection: Connection) -> CommittedBatch | None:
        """Let a sink on this connection write the next batch, as after a start: where the ledger has it already there is nothing to do."""
        number = self.written
        at = position.read(connection)
        assert at is not None
        self._sink_run.plan(number, (number * 100, 0), (number * 100 + 100, 0))
        if at.end == self._sink_run.planned[number].end:
            return None
        return self._sink_run.write(number, *rows(number), sink=self._sink_run.new_sink(connection, at=at))

    def fail(self, connection: Connection) -> OutboxError:
        """Let the write fail; return what the job would end with. Nothing but the whole batch may be there then."""
        with pytest.raises((psycopg.Error, OutboxError)) as caught:
            self.write(connection)
        self.assert_whole()
        return explain(caught.value)

    def go_on(self) -> CommittedBatch | None:
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
                       (SELECT count(*) FROM outbox.dead_letter)
                """
            ).fetchone()
        assert found is not None
        batches, sessions, letters = found
        assert (sessions, letters) == (batches * SESSIONS, batches)
        assert batches in (self.written, self.written + 1)


def rows(number: int) -> list[Row]:
    first = number * 100
    outputs = [OutputEvent("t", bytes([65 + number % 26]) * OUTPUT_BYTES)]
    return [
        *(session(f"key-{n}", first + 2 * n, first + 2 * n + 1, outputs) for n in range(SESSIONS)),
        letter("lost", first + 90, first + 95, "timed_out"),
    ]
