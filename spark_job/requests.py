"""What a command asks of the running job, and the job's answer: the table `outbox.request`.

The job reads it with its heartbeat and answers between two batches. A request is bound to one run: what nobody answered dies with it, so
that a forgotten `stop` cannot end a job that was started later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow, class_row
from psycopg.types.json import Jsonb

from db.statements import statement

Connection = psycopg.Connection[TupleRow]
Kind = Literal["stop", "restore", "rescale"]


@dataclass(frozen=True)
class Request:
    """Something that was asked and not answered yet.

    `arguments`: `{"savepoint": name or null}` of a stop; `{"savepoint": name, "policy": "skip" or "reissue", "accept_data_loss": bool}` of
    a restore; `{"buckets": int, "shuffle_partitions": int}` of a rescale.
    """

    request_id: int
    run_id: UUID
    kind: Kind
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The answer to a request: it was done, or refused and nothing changed. `text`: for people."""

    outcome: Literal["done", "refused"]
    text: str

    @property
    def done(self) -> bool:
        """Whether it was done."""
        return self.outcome == "done"


def ask(connection: Connection, run_id: UUID, kind: Kind, arguments: Mapping[str, Any]) -> int:
    """Ask something of a run; return the number to ask for the outcome with."""
    row = connection.execute(
        statement("spark_job", "insert_request"),
        {"run_id": run_id, "kind": kind, "arguments": Jsonb(dict(arguments))},
    ).fetchone()
    assert row is not None
    return int(row[0])


def pending(connection: Connection, run_id: UUID) -> Request | None:
    """Return the oldest request that this run has not answered."""
    with connection.cursor(row_factory=class_row(Request)) as cursor:
        return cursor.execute(statement("spark_job", "pending_request"), {"run_id": run_id}).fetchone()


def answer(connection: Connection, request_id: int, outcome: Literal["done", "refused"], text: str) -> None:
    """Answer a request, in the transaction that does what was asked. Raises RuntimeError when it has an answer already."""
    answered = connection.execute(
        statement("spark_job", "answer_request"),
        {"request_id": request_id, "outcome": outcome, "answer": text},
    )
    if answered.rowcount != 1:
        raise RuntimeError(f"request {request_id} has an answer already, or does not exist")


def outcome(connection: Connection, request_id: int) -> Outcome | None:
    """Return the answer to a request, None while there is none."""
    with connection.cursor(row_factory=class_row(Outcome)) as cursor:
        return cursor.execute(
            statement("spark_job", "request_outcome"), {"request_id": request_id}
        ).fetchone()
