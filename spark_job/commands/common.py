"""What the commands share: the connection, progress while a running job is waited for, and the question before a change."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
import typer
from rich.console import Console

from db.connection import connect
from db.migrate import require_current
from db.statements import queries
from service.errors import SettingsError, UnavailableError
from service.settings import Settings
from spark_job.recovery import position
from spark_job.recovery.generations import Connection
from spark_job.spark.failures import explained

_LEDGER = queries("spark_job", "ledger")
_WRITER = queries("spark_job", "writer")

errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def outbox(settings: Settings, command: str) -> Iterator[Connection]:
    """Connect in autocommit mode, as the running job does; pg_stat_activity shows the command."""
    with connect(settings.postgres, f"spark-job {command}", autocommit=True) as connection:
        require_current(connection)
        with explained():
            yield connection


@contextmanager
def writer_lock(connection: Connection) -> Iterator[None]:
    """A transaction between two batches of whatever job runs. Raises UnavailableError when a batch keeps the lock too long."""
    with connection.transaction():
        try:
            connection.execute(_WRITER["lock"])
        except psycopg.errors.LockNotAvailable as error:
            raise UnavailableError(
                "a batch of the running job has held the writer lock for longer than [postgres] lock_timeout_ms. Nothing was "
                "changed; try again."
            ) from error
        yield


@contextmanager
def progress(connection: Connection, what: str) -> Iterator[Callable[[float], None]]:
    """Show on stderr what is waited for, how long, and at which batch the job is."""
    with errors.status(what) as shown:

        def show(waited_s: float) -> None:
            found = position.read(connection)
            at = f", newest batch {found.batch_id}" if found and found.batch_id else ""
            shown.update(f"{what} ({waited_s:.0f} s{at})")

        yield show


def outbox_uuid(connection: Connection) -> UUID:
    """Return which outbox a connection leads to."""
    row = connection.execute(_LEDGER["outbox_uuid"]).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def somebody_to_ask() -> bool:
    """Whether a person sits at the other end."""
    return sys.stdin.isatty()


def confirm(yes: bool) -> None:
    """Ask whether to go on. Raises SettingsError where nobody can be asked, typer.Abort on a no."""
    if yes:
        return
    if not somebody_to_ask():
        raise SettingsError("this changes what the job does next, and there is nobody to ask: say --yes.")
    typer.confirm("Go on?", abort=True, err=True)
