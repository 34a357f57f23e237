"""The runs: outbox.run has one row for each, with the position that it continued from and, unless it was killed, why it ended."""

import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from db.connection import Connection
from db.statements import queries
from service.errors import reason_of
from service.lifecycle.process import host_name
from service.printable import printable
from spark_job.input.offsets import Offsets
from spark_job.ledger.batch_size import PastRun
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartitions

_RUNS = queries("spark_job", "runs")

STOPPED = "stopped"
"""The recorded reason of a run that ended on request."""
_OF_SIZE = "batches of at most {} events: "
_FAILED_AT = re.compile(r"\w+: " + _OF_SIZE.format(r"(\d+)"))
_BECAUSE_CHARS = 2_000
_REMEMBERED = 50


@dataclass(frozen=True)
class Run:
    """A row of outbox.run: what the start decided, and how the run ended. Offsets as `{topic id: {partition: offset}}`."""

    run_id: UUID
    generation: int
    restored: str
    resumes_at: dict[str, dict[str, int]]
    rebuild_offsets: int
    max_events: int | None
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
    failed_before: str | None = None
    """Why the process' previous attempt ended; the same cause may end this one. None for a first attempt."""

    @property
    def failed(self) -> bool:
        """Whether it ended by a failure, after which its process may start again."""
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
            "resumes_at": self.resumes_at,
            "rebuild_offsets": self.rebuild_offsets,
            "max_events": self.max_events,
            "attempt": self.attempt,
            "host": self.host,
            "pid": self.pid,
            "started_at": self.started_at.isoformat(),
            "ended_at": self.ended_at.isoformat() if self.ended_at else None,
            "ended_because": self.ended_because,
            "failed_before": self.failed_before,
        }


@dataclass(frozen=True)
class Begun:
    """What is recorded of a start."""

    generation: Generation
    restored: str
    resumes_at: Offsets
    open: OpenPartitions
    explanation: str
    max_events: int
    read: Offsets = field(default_factory=Offsets)
    """The greatest position of all generations when it began."""

    @property
    def reissued_offsets(self) -> int:
        """Number of offsets that were read before and are read again: 0 except after a restore with reissue, or after Kafka has lost the
        end of the input and assigns offsets a second time.
        """
        return sum(max(0, self.read.at(where) - offset) for where, offset in self.resumes_at.items())

    @property
    def rebuild_offsets(self) -> int:
        """The most offsets that rebuilds read again: all of them if the cache has no open session, fewer otherwise."""
        return sum(max(0, self.resumes_at.at(where) - each.safe) for where, each in self.open.items())


def record(
    connection: Connection, run_id: UUID, begun: Begun, *, attempt: int, transform_fingerprint: str
) -> None:
    """Insert the row of a start; call in the transaction that decides it."""
    connection.execute(
        _RUNS["insert"],
        {
            "run_id": run_id,
            "generation": begun.generation.number,
            "restored": begun.restored,
            "resumes_at": Jsonb(begun.resumes_at.to_json()),
            "rebuild_offsets": begun.rebuild_offsets,
            "max_events": begun.max_events,
            "explanation": begun.explanation,
            "attempt": attempt,
            "transform_fingerprint": transform_fingerprint,
            "host": host_name(),
            "pid": os.getpid(),
        },
    )


def end(connection: Connection, run_id: UUID, because: str) -> None:
    """Note why a run ended. A run that was killed has no end."""
    connection.execute(_RUNS["end"], {"run_id": run_id, "because": because})


def because(error: BaseException | None, failed_at: int | None) -> str:
    """Return the text that records a run's end. `failed_at`: the size of its batches, if that can explain the error."""
    if error is None:
        return STOPPED
    size = "" if failed_at is None else _OF_SIZE.format(failed_at)
    # The text may be a server's, with characters that Postgres refuses.
    return printable(f"{type(error).__name__}: {size}{reason_of(error)}", keep="\n\t")[:_BECAUSE_CHARS]


def sizes(connection: Connection, end: Offsets, attempt: int) -> list[PastRun]:
    """Return what the newest runs show about the size of batches, the newest first.

    `end`: where the new run resumes; `attempt`: its number within its process.

    A run whose process ended for a reason other than size counts as stopped: the cause may have been repaired.
    """
    found = []
    rows = connection.execute(_RUNS["sizes"], {"limit": _REMEMBERED}).fetchall()
    for max_events, ended_because, resumes_at, its_attempt in rows:
        began = Offsets.from_json(resumes_at)
        if max_events is not None:
            failed_at = _failed_at(ended_because)
            if ended_because is None and all(began.at(where) == offset for where, offset in end.items()):
                # Killed without a batch: for lack of memory, perhaps.
                failed_at = max_events
            gave_up = attempt == 1 and ended_because is not None and failed_at is None
            found.append(PastRun(max_events, failed_at, ended_because == STOPPED or gave_up))
        end, attempt = began, its_attempt
    return found


def _failed_at(ended_because: str | None) -> int | None:
    noted = _FAILED_AT.match(ended_because or "")
    return None if noted is None else int(noted[1])


def newest(connection: Connection) -> Run | None:
    """Return the newest start, None before the first."""
    with connection.cursor(row_factory=class_row(Run)) as cursor:
        return cursor.execute(_RUNS["newest"]).fetchone()
