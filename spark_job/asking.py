"""Ask the running job for something and wait for what becomes of it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row

from db.errors import OutboxError, UnavailableError
from db.settings import JobSettings
from db.statements import statement
from spark_job import requests, writer
from spark_job.requests import Connection, Kind
from spark_job.writer import Owner

_POLL_S = 0.2


class RefusedError(OutboxError):
    """The running job could not do what was asked, and goes on as before."""

    exit_code = 5


@dataclass(frozen=True)
class State:
    """A request and the owner of the outbox, at one moment."""

    run_id: UUID
    outcome: Literal["done", "refused"] | None
    answer: str | None
    owner_run_id: UUID | None
    owner_lives: bool

    @property
    def run_has_ended(self) -> bool:
        """Whether the run that was asked gave the outbox back or lost it."""
        return self.owner_run_id != self.run_id


def living_owner(connection: Connection, settings: JobSettings) -> Owner | None:
    """Return the run that owns the outbox, None where none is alive."""
    owner = writer.read_owner(connection)
    return owner if owner.is_alive(settings.owner_timeout_s) else None


def ask(
    connection: Connection,
    run_id: UUID,
    kind: Kind,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float,
    waiting: Callable[[float], None] = lambda _: None,
) -> str | None:
    """Ask a run, wait until that is done, and return its answer. `waiting` is called with the seconds so far.

    Return None when the run was asked to stop and ended in another way. Raises RefusedError with the job's reason; UnavailableError when
    it died before it answered, when another run took its place, or when it has not answered within `timeout_s`: then what was asked may
    still be done.
    """
    request_id = requests.ask(connection, run_id, kind, arguments)
    began = time.monotonic()
    while not _is_settled(state := _read(connection, request_id), kind):
        waited = time.monotonic() - began
        if waited > timeout_s:
            break
        waiting(waited)
        time.sleep(_POLL_S)
    if state.outcome == "refused":
        raise RefusedError(f"the job goes on as before: {state.answer}")
    if state.outcome == "done":
        return state.answer or ""
    if kind == "stop" and state.owner_run_id is None:
        return None
    if state.owner_run_id not in (None, run_id):
        raise UnavailableError(
            f"run {run_id} ended before it answered, and run {state.owner_run_id} owns the outbox now: nothing was done. Ask again."
        )
    if state.owner_run_id is not None and not state.owner_lives:
        raise UnavailableError(
            f"run {run_id} died before it answered: nothing was done. Ask again: where no job runs, the command does it by itself."
        )
    what = (
        "no job runs now" if state.run_has_ended else "it acts on the request as soon as its batch has ended"
    )
    raise UnavailableError(
        f"run {run_id} has not answered within {timeout_s:g} s; {what}. `spark-job status` shows what it does; --timeout waits longer."
    )


def wait_for_end(
    connection: Connection,
    run_id: UUID,
    *,
    timeout_s: float,
    waiting: Callable[[float], None] = lambda _: None,
) -> None:
    """Wait until a run has given the outbox back. Raises UnavailableError after `timeout_s`."""
    began = time.monotonic()
    while (owner := writer.read_owner(connection)).run_id == run_id and owner.backend_lives:
        if time.monotonic() - began > timeout_s:
            raise UnavailableError(
                f"run {run_id} (pid {owner.pid} on {owner.host}) has stopped between two batches, but its process did not end within "
                f"{timeout_s:g} s. It writes nothing more; `spark-job status` shows when it is gone."
            )
        waiting(time.monotonic() - began)
        time.sleep(_POLL_S)


def _is_settled(state: State, kind: Kind) -> bool:
    """Whether it is known what became of the request."""
    if state.outcome is not None or state.owner_run_id not in (None, state.run_id):
        return True
    if state.owner_run_id is None:
        # A stop is answered before the outbox is given back. Of a restore or a rescale, the run ends first; then its process starts the
        # next run, which answers as it takes the outbox.
        return kind == "stop"
    return not state.owner_lives


def _read(connection: Connection, request_id: int) -> State:
    with connection.cursor(row_factory=class_row(State)) as cursor:
        state = cursor.execute(statement("spark_job", "request_state"), {"request_id": request_id}).fetchone()
    assert state is not None, "no role deletes requests"
    return state
