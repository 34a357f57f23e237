"""Who may write: the row `outbox.writer`, and the writer lock.

A run that has lost the outbox to another one notices it by the first of these: the takeover has ended its connection (here), its commit is
refused (`disowned`), or its heartbeat updates no row (owner_heartbeat.py). Unless its commit was refused, `_judge` in stream/query.py then
asks who owns the outbox. The run ends with FencedError: the process ends, or waits again if it is a standby (supervisor/attempts.py).
"""

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
import structlog
from psycopg.rows import class_row

from db.connection import Connection, connect
from db.statements import queries
from service.errors import FencedError, MovedError, OutboxError, UnavailableError
from service.lifecycle.process import host_name
from service.settings import JobSettings, PostgresSettings
from spark_job.ledger import runs
from spark_job.monitoring import metrics

_RUNS = queries("spark_job", "runs")
_WRITER = queries("spark_job", "writer")

log = structlog.get_logger()


@dataclass(frozen=True)
class Owner:
    """The writer row as it is now."""

    run_id: UUID | None
    host: str | None
    pid: int | None
    backend_pid: int | None
    started_at: datetime | None
    heartbeat_age_s: float | None
    backend_lives: bool
    held_back_since: datetime | None
    held_back_because: str | None

    def is_alive(self, timeout_s: float) -> bool:
        """Tell whether the owner's connection is open and its heartbeat younger than `timeout_s`.

        A killed process loses its connection at once; a process that hangs keeps its connection, but its heartbeat stops.
        """
        return self.run_id is not None and self.backend_lives and (self.heartbeat_age_s or 0.0) < timeout_s


def read_owner(connection: Connection) -> Owner:
    """Read the writer row without waiting for its lock."""
    with connection.cursor(row_factory=class_row(Owner)) as cursor:
        owner = cursor.execute(_WRITER["read"]).fetchone()
    assert owner is not None, "outbox.writer has its one row from the migration on"
    return owner


def take_over(
    connection: Connection,
    run_id: UUID,
    settings: JobSettings,
    *,
    force: bool,
    own: Collection[UUID] = (),
) -> None:
    """Make `run_id` the owner, within the caller's transaction, which then holds the writer lock.

    `own`: former runs of this process; after a network failure, Postgres may still consider one of them alive.
    Raises FencedError while another owner lives, unless `force`. The backend of an owner that is dead or forced out is terminated, so that
    a stopped process cannot hold the lock.
    """
    owner = read_owner(connection)
    if owner.run_id not in (None, run_id):
        if owner.is_alive(settings.owner_timeout_s) and owner.run_id not in own and not force:
            raise FencedError(
                f"run {owner.run_id} (pid {owner.pid} on {owner.host}, since {owner.started_at}) owns this outbox, "
                f"last heartbeat {owner.heartbeat_age_s:.1f} s old. Stop it, or start with --take-over to fence it."
            )
        if owner.backend_lives:
            _terminate(connection, owner)
        metrics.took_over()
        log.warning(
            "writer_taken_over", former_run=str(owner.run_id), former_pid=owner.pid, former_host=owner.host
        )
    lock(connection)
    now = read_owner(connection)
    if now.run_id not in (None, owner.run_id):
        raise FencedError(
            f"run {now.run_id} (pid {now.pid} on {now.host}) took this outbox over at the same moment and owns it now. Stop it, or start "
            "with --take-over to fence it."
        )
    connection.execute(
        _WRITER["own"],
        {"run_id": run_id, "host": host_name(), "pid": os.getpid()},
    )


def _terminate(connection: Connection, owner: Owner) -> None:
    try:
        with connection.transaction():  # a savepoint: a refusal must not end the caller's transaction
            connection.execute(_WRITER["terminate_backend"], {"pid": owner.backend_pid})
    except psycopg.errors.InsufficientPrivilege as error:
        # This matters only if that backend holds the lock: `lock` then fails after [postgres] lock_timeout_ms.
        log.warning("former_writer_not_terminated", backend_pid=owner.backend_pid, error=str(error))


def lock_and_check(connection: Connection, run_id: UUID) -> None:
    """Take the writer lock for this transaction. Raises FencedError or MovedError if this run does not own the outbox."""
    lock(connection)
    if (error := disowned(connection, run_id)) is not None:
        raise error


def disowned(connection: Connection, run_id: UUID) -> OutboxError | None:
    """Return why a run no longer owns the outbox; None if it does."""
    owner = read_owner(connection)
    if owner.run_id == run_id:
        return None
    known = connection.execute(_RUNS["is_known"], {"run_id": run_id}).fetchone()
    if owner.run_id is None or known is None:
        return MovedError(
            f"this run ({run_id}) no longer owns the outbox, and no later one does: a command used it meanwhile, or the database was "
            "restored or failed over to an older state. Nothing was written; the next attempt checks again."
        )
    return FencedError(
        f"run {owner.run_id} (pid {owner.pid} on {owner.host}) has taken this outbox over from {run_id}. Nothing of this one is left to "
        "write; it stops."
    )


def lock(connection: Connection) -> None:
    """Take the writer lock, until the transaction ends.

    It locks a row of another table, for which roles need a grant: a lock on `outbox.writer` would block the owner's heartbeat while a
    batch is written. Later statements of the transaction read what the last owner committed.
    """
    connection.execute(_WRITER["lock"])


def ask_disowned(postgres: PostgresSettings, run_id: UUID) -> OutboxError | None:
    """As `disowned`, on a new connection; None also if Postgres is unreachable."""
    try:
        with connect(postgres, "spark-job") as connection:
            return disowned(connection, run_id)
    except (UnavailableError, psycopg.Error):
        return None


def release(postgres: PostgresSettings, run_id: UUID, because: str) -> None:
    """Give the ownership back, so that the next start need not check whether this run is alive, and note why the run ended.

    This uses a separate connection: the sink's may have a statement under way. If Postgres is unreachable, nothing is lost: the next
    start sees that the backend is gone.
    """
    with (
        contextlib.suppress(psycopg.Error, UnavailableError),
        connect(postgres, "spark-job", autocommit=True) as connection,
    ):
        give_back(connection, run_id)
        runs.end(connection, run_id, because)


def give_back(connection: Connection, run_id: UUID) -> None:
    """Give the ownership back if this run still has it."""
    connection.execute(_WRITER["release"], {"run_id": run_id})
