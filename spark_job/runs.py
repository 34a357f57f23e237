""" "Was I restored?": one row of outbox.run for each start, and what the newest one says."""

import os
import socket
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from db.statements import statement
from spark_job.ledger import Connection, Generation
from spark_job.recovery import Resumption

STOPPED = "stopped"
"""Why a run ended that was asked to."""


@dataclass(frozen=True)
class Run:
    """What a start found and decided. Offsets as `{topic id: {partition: offset}}`."""

    run_id: UUID
    generation: int
    restored: str
    spark_batch: int
    resumes_at: dict[str, dict[str, int]]
    high_water: dict[str, dict[str, int]]
    read_again: int
    explanation: str
    attempt: int
    host: str
    pid: int
    started_at: datetime
    ended_at: datetime | None
    ended_because: str | None
    system_identifier: int
    timeline: int
    server_system_identifier: int
    server_timeline: int

    @property
    def failed(self) -> bool:
        """Whether it ended by a failure, so that its process may start again."""
        return self.ended_because is not None and self.ended_because != STOPPED

    @property
    def server_changed(self) -> bool:
        """Whether Postgres is another server, or was promoted, since that start."""
        return (self.system_identifier, self.timeline) != (
            self.server_system_identifier,
            self.server_timeline,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        return {
            "run": str(self.run_id),
            "generation": self.generation,
            "restored": self.restored,
            "explanation": self.explanation,
            "spark_batch": self.spark_batch,
            "resumes_at": self.resumes_at,
            "high_water": self.high_water,
            "read_again": self.read_again,
            "attempt": self.attempt,
            "host": self.host,
            "pid": self.pid,
            "started_at": self.started_at.isoformat(),
            "ended_at": self.ended_at.isoformat() if self.ended_at else None,
            "ended_because": self.ended_because,
        }


def record(
    connection: Connection,
    run_id: UUID,
    generation: Generation,
    resumption: Resumption,
    *,
    attempt: int,
    transform_fingerprint: str,
) -> None:
    """Insert the row of a start; call in the transaction that decides it."""
    connection.execute(
        statement("spark_job", "insert_run"),
        {
            "run_id": run_id,
            "generation": generation.number,
            "restored": resumption.restored,
            "spark_batch": resumption.spark_batch,
            "resumes_at": Jsonb(resumption.resumes_at.to_json()),
            "high_water": Jsonb(generation.high_water.to_json()),
            "read_again": resumption.read_again,
            "explanation": resumption.text,
            "attempt": attempt,
            "transform_fingerprint": transform_fingerprint,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        },
    )


def end(connection: Connection, run_id: UUID, because: str) -> None:
    """Note why a run ended. A run that was killed has no end."""
    connection.execute(statement("spark_job", "end_run"), {"run_id": run_id, "because": because})


def newest(connection: Connection) -> Run | None:
    """Return the newest start, None before the first."""
    with connection.cursor(row_factory=class_row(Run)) as cursor:
        return cursor.execute(statement("spark_job", "newest_run")).fetchone()
