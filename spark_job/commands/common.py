"""What the commands share: the connection, the writer lock, and progress while a command waits for the running job."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated
from uuid import UUID

import psycopg
import typer

from db.connection import Connection, connect
from db.migrate import require_current
from db.statements import queries
from service.commands.output import error_console
from service.errors import UnavailableError
from service.settings import Settings
from spark_job.ledger import ownership, position

_LEDGER = queries("spark_job", "ledger")

errors = error_console()

Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the running job's answer.")
]


@contextmanager
def outbox(settings: Settings, command: str) -> Iterator[Connection]:
    """Connect in autocommit mode, as the running job does; pg_stat_activity shows the command."""
    # Imported here: help and completion need neither Spark nor Kafka's client.
    from spark_job.failures.explain import explained

    with connect(settings.postgres, f"spark-job {command}", autocommit=True) as connection:
        require_current(connection)
        with explained():
            yield connection


@contextmanager
def writer_lock(connection: Connection) -> Iterator[None]:
    """Run the block in a transaction between two batches of the running job. Raises UnavailableError if a batch holds the lock too long."""
    with connection.transaction():
        try:
            ownership.lock(connection)
        except psycopg.errors.LockNotAvailable as error:
            raise UnavailableError(
                "a batch of the running job has held the writer lock for longer than [postgres] lock_timeout_ms. Nothing was "
                "changed; try again."
            ) from error
        yield


@contextmanager
def progress(connection: Connection, what: str) -> Iterator[Callable[[float], None]]:
    """Show on stderr what the command waits for, for how long, and the job's newest batch."""
    with errors.status(what) as shown:

        def show(waited_s: float) -> None:
            found = position.read(connection)
            at = f", newest batch {found.batch_id}" if found and found.batch_id else ""
            shown.update(f"{what} ({waited_s:.0f} s{at})")

        yield show


def outbox_uuid(connection: Connection) -> UUID:
    """Return the uuid of the connection's outbox."""
    row = connection.execute(_LEDGER["outbox_uuid"]).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found
