"""Send a request to the running job, and wait for its answer."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from db.connection import Connection
from db.statements import queries
from service.errors import OutboxError, UnavailableError
from service.settings import JobSettings
from spark_job.ledger import ownership, requests
from spark_job.ledger.ownership import Owner
from spark_job.ledger.requests import Kind

_REQUESTS = queries("spark_job", "requests")

_POLL_S = 0.2
GONE_S = 15.0  # longer than a process takes from one run's end to the next run's connection


class NotDoneError(OutboxError):
    """The running job could not do what was asked, and continues as before."""

    exit_code = 5


class AnsweredError(OutboxError):
    """The command was interrupted, but the job had answered already."""


@dataclass(frozen=True)
class RequestState:
    """A request and the owner of the outbox, at one moment."""

    run_id: UUID
    outcome: Literal["done", "refused"] | None
    answer: str | None
    owner_run_id: UUID | None
    owner_lives: bool
    job_connected: bool  # any job, also one that has not taken the outbox yet


def living_owner(connection: Connection, settings: JobSettings) -> Owner | None:
    """Return the run that owns the outbox; None if none is alive."""
    owner = ownership.read_owner(connection)
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
    """Send a request to a run, wait for the answer and return it. `waiting` is called with the seconds so far.

    Return None if a run that was asked to stop ended without answering. Raises NotDoneError with the job's reason. Raises UnavailableError,
    with the request withdrawn and nothing done, when the run died before it answered, when another run took its place, or when no answer
    came within `timeout_s`. An interrupted command withdraws its request, or raises AnsweredError if the job has answered already,
    UnavailableError if Postgres fails, too: then the outcome is unknown.
    """
    request_id = requests.ask(connection, run_id, kind, arguments)
    with _withdrawn_on_error(connection, request_id):
        state, lost = _wait(connection, request_id, kind, run_id, timeout_s, waiting)
    if state.outcome == "refused":
        raise NotDoneError(f"the job continues as before: {state.answer}")
    if state.outcome == "done":
        return state.answer or ""
    if kind == "stop" and state.owner_run_id is None:
        return None
    raise UnavailableError(f"run {run_id} {lost}. Nothing was done; run the command again.")


@contextlib.contextmanager
def _withdrawn_on_error(connection: Connection, request_id: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        try:
            if not requests.withdraw(connection, request_id) and interrupted:
                answer = requests.outcome(connection, request_id)
                assert answer is not None, "an answer is final"
                text = f"interrupted, but the job has already answered: {answer.outcome}: {answer.text}"
                raise AnsweredError(text) from None
        except psycopg.Error as failure:
            # Other errors than an interrupt are raised as they are: usually they say that Postgres fails.
            if interrupted:
                text = f"interrupted, and Postgres failed: it is unknown whether the job carries out what was asked: {str(failure).strip()}"
                raise UnavailableError(text) from failure
        raise


def _wait(
    connection: Connection,
    request_id: int,
    kind: Kind,
    run_id: UUID,
    timeout_s: float,
    waiting: Callable[[float], None],
) -> tuple[RequestState, str | None]:
    """Wait for the answer, or until there is a reason to give up and the request is withdrawn; return the state and that reason."""
    began = connected = time.monotonic()
    while True:
        state, now = _read(connection, request_id), time.monotonic()
        connected = now if state.job_connected else connected
        lost = _lost(state, kind, run_id, now - connected, now - began, timeout_s)
        if state.outcome is not None or (lost and requests.withdraw(connection, request_id)):
            return state, lost
        waiting(now - began)
        time.sleep(_POLL_S)


def _lost(
    state: RequestState, kind: Kind, run_id: UUID, gone_s: float, waited_s: float, timeout_s: float
) -> str | None:
    """Return the reason to give up waiting for an answer; None if there is none. `gone_s`: seconds without a connection of a job."""
    if state.owner_run_id not in (None, run_id):
        return f"ended before it answered, and run {state.owner_run_id} owns the outbox now"
    if state.owner_run_id is None and (kind == "stop" or gone_s > GONE_S):
        # The job answers a stop before it gives the outbox back. For a restore, the run ends first, and the process's next run answers when
        # it takes the outbox over.
        return "ended before it answered, and no job runs now"
    if state.owner_run_id is not None and not state.owner_lives:
        return "died before it answered"
    if waited_s > timeout_s:
        return f"has not answered within {timeout_s:g} s (`spark-job status` shows what it does; --timeout waits longer)"
    return None


def ask_between_attempts(
    connection: Connection,
    run_id: UUID,
    arguments: Mapping[str, Any],
    *,
    settings: JobSettings,
    patience_s: float,
    waiting: Callable[[float], None] = lambda _: None,
) -> str | None:
    """After a failed run, ask its process to stop instead of starting again; return its answer.

    Return None, with the request withdrawn, after `patience_s` without an answer, or once a run owns the outbox. Raises
    NotDoneError with the job's reason; when interrupted, AnsweredError and UnavailableError as `ask`.
    """
    request_id = requests.ask(connection, run_id, "stop", arguments)
    began = time.monotonic()
    with _withdrawn_on_error(connection, request_id):
        while (state := _read(connection, request_id)).outcome is None:
            over = time.monotonic() - began > patience_s or living_owner(connection, settings) is not None
            if over and requests.withdraw(connection, request_id):
                return None
            waiting(time.monotonic() - began)
            time.sleep(_POLL_S)
    if state.outcome == "refused":
        raise NotDoneError(f"the job continues as before: {state.answer}")
    return state.answer or ""


def wait_for_end(
    connection: Connection,
    run_id: UUID,
    *,
    timeout_s: float,
    waiting: Callable[[float], None] = lambda _: None,
) -> None:
    """Wait until a run has given the outbox back or its connection is gone. Raises UnavailableError after `timeout_s`."""
    began = time.monotonic()
    while (owner := ownership.read_owner(connection)).run_id == run_id and owner.backend_lives:
        if time.monotonic() - began > timeout_s:
            raise UnavailableError(
                f"run {run_id} (pid {owner.pid} on {owner.host}) has stopped between two batches, but its process did not end within "
                f"{timeout_s:g} s. It writes nothing more; `spark-job status` shows when it is gone."
            )
        waiting(time.monotonic() - began)
        time.sleep(_POLL_S)


def _read(connection: Connection, request_id: int) -> RequestState:
    with connection.cursor(row_factory=class_row(RequestState)) as cursor:
        state = cursor.execute(_REQUESTS["state"], {"request_id": request_id}).fetchone()
    assert state is not None, "no role deletes requests"
    return state
