"""Requests of commands to the running job, and its answers: the table `outbox.request`.

The job reads it with its heartbeat, and answers between two batches or attempts: job.py carries out a stop, recovery/start.py a restore.
Only the run that a request names, or a later one of the same process, answers it, so that a forgotten `stop` cannot end a job that was
started later. A command that gives up withdraws its request, so that its report is certain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from db import operations
from db.connection import Connection
from db.statements import queries
from service.errors import OutboxError

_REQUESTS = queries("spark_job", "requests")

Kind = Literal["stop", "restore"]
_COMMANDS: dict[Kind, str] = {"stop": "spark-job stop", "restore": "spark-job savepoint restore"}


class WithdrawnError(OutboxError):
    """The command has withdrawn its request, which must not be carried out any more."""

    def __str__(self) -> str:
        """The docstring is the message."""
        return str(self.__doc__)


@dataclass(frozen=True)
class JobRequest:
    """A request without an answer.

    `arguments`: `{"savepoint": name or null}` of a stop; `{"savepoint": name or null, "policy": "skip" or "reissue",
    "accept_data_loss": bool, "accept_changed_assembly": bool}` of a restore.
    """

    request_id: int
    run_id: UUID
    kind: Kind
    arguments: dict[str, Any]


@dataclass(frozen=True)
class RequestOutcome:
    """The answer to a request: it was done, or refused and nothing changed. `text`: for people."""

    outcome: Literal["done", "refused"]
    text: str

    @property
    def done(self) -> bool:
        """Whether it was done."""
        return self.outcome == "done"


def ask(connection: Connection, run_id: UUID, kind: Kind, arguments: Mapping[str, Any]) -> int:
    """Send a request to a run; return the request's id."""
    with connection.transaction():
        row = connection.execute(
            _REQUESTS["insert"],
            {"run_id": run_id, "kind": kind, "arguments": Jsonb(dict(arguments))},
        ).fetchone()
        assert row is not None
        request_id = int(row[0])
        operations.record(connection, _COMMANDS[kind], arguments, {"request": request_id, "run": run_id})
    return request_id


def pending(connection: Connection, *run_ids: UUID) -> JobRequest | None:
    """Return the oldest request to one of the runs that has no answer yet."""
    with connection.cursor(row_factory=class_row(JobRequest)) as cursor:
        return cursor.execute(_REQUESTS["pending"], {"run_ids": list(run_ids)}).fetchone()


def answer(connection: Connection, request_id: int, outcome: Literal["done", "refused"], text: str) -> None:
    """Answer a request, in the transaction that does what was asked. Raises WithdrawnError when the command has given up waiting."""
    with connection.transaction():
        if not _settle(connection, request_id, outcome, text):
            raise WithdrawnError
        operations.record(connection, "spark-job run", {"request": request_id}, {outcome: text})


def refuse(connection: Connection, request_id: int, text: str) -> None:
    """Answer why a request was not fulfilled, if its command still waits."""
    _settle(connection, request_id, "refused", text)


def withdraw(connection: Connection, request_id: int) -> bool:
    """Withdraw a request, so that it will certainly not be done later; return False if it has an answer already."""
    return _settle(connection, request_id, "refused", "withdrawn by the command")


def _settle(connection: Connection, request_id: int, outcome: str, text: str) -> bool:
    settled = connection.execute(
        _REQUESTS["answer"],
        {"request_id": request_id, "outcome": outcome, "answer": text},
    )
    return settled.rowcount == 1


def outcome(connection: Connection, request_id: int) -> RequestOutcome | None:
    """Return the answer to a request, None while there is none."""
    with connection.cursor(row_factory=class_row(RequestOutcome)) as cursor:
        return cursor.execute(_REQUESTS["outcome"], {"request_id": request_id}).fetchone()
