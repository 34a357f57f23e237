"""What the demo asks the outbox, in SQL: how far everything is, what waits, what went wrong."""

from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from db.statements import queries
from examples.demo.expected import Letter

_OUTBOX = queries("examples.demo", "outbox")


class Progress(NamedTuple):
    """Sums over the ledger and the lanes."""

    batches: int = 0
    input_events: int = 0
    sessions: int = 0
    output_events: int = 0
    delivered: int = 0
    dead_letters: int = 0
    open_sessions: int = 0


class Outbox:
    """Questions to one outbox over one connection, each in a transaction of its own."""

    def __init__(self, dsn: str) -> None:
        """Connect. Raises psycopg.OperationalError."""
        self._connection = psycopg.connect(dsn, autocommit=True, application_name="demo")

    def add_auditor(self, login: str) -> None:
        """Make a login that is a member of outbox_auditor."""
        create = sql.SQL("CREATE ROLE {} LOGIN IN ROLE outbox_auditor").format(sql.Identifier(login))
        self._connection.execute(create)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def has_generation(self) -> bool:
        """Whether the job has got as far as opening its first generation."""
        row = self._connection.execute(_OUTBOX["generations"]).fetchone()
        return row is not None and row[0] > 0

    def progress(self) -> Progress:
        """Where everything is now."""
        with self._connection.cursor(row_factory=class_row(Progress)) as cursor:
            return cursor.execute(_OUTBOX["progress"]).fetchone() or Progress()

    def pending(self) -> int:
        """Output events that are in the outbox and not yet recorded as sent."""
        row = self._connection.execute(_OUTBOX["pending"]).fetchone()
        return int(row[0]) if row else 0

    def done(self) -> dict[tuple[str, int], int]:
        """Per (topic, partition): how far the input was read; everything closing below has been dealt with."""
        rows = self._connection.execute(_OUTBOX["done"]).fetchall()
        return {(topic, partition): done for topic, partition, done in rows}

    def letters(self) -> list[Letter]:
        """The dead letters' identities."""
        rows = self._connection.execute(_OUTBOX["letters"]).fetchall()
        return [Letter(*row) for row in rows]

    def letter_table(self) -> list[tuple[Any, ...]]:
        """Per reason: letters, the events in them, one explanation."""
        return self._connection.execute(_OUTBOX["letter_table"]).fetchall()
