"""The ledger: read its state, and add a transaction's rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import Offsets
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.sink.batch_result import OutputRow

_LEDGER = queries("spark_job", "ledger")


@dataclass(frozen=True)
class LedgerState:
    """The state of the ledger that a transaction needs to continue it."""

    run_id: UUID | None
    """The owner of the outbox now."""
    generation: int | None
    """The newest one."""
    newest_stream: int | None
    """Its newest stream batch."""
    next_batch: int
    lanes: int
    """Of the current epoch."""


def read_state(connection: Connection) -> LedgerState:
    """Read the state. It is exact only under the writer lock, in a statement after the one that took it."""
    with connection.cursor(row_factory=class_row(LedgerState)) as cursor:
        state = cursor.execute(_LEDGER["state"]).fetchone()
    assert state is not None, "outbox.writer has its one row from the migration on"
    return state


def ensure_partitions(connection: Connection, first_batch: int, last_batch: int) -> None:
    """Make the table partitions that hold these batches, in a transaction of its own."""
    with connection.transaction():
        connection.execute(
            _LEDGER["ensure_partitions"],
            {"first_batch": first_batch, "last_batch": last_batch},
        )


@dataclass(frozen=True)
class LedgerEntry:
    """The content of a transaction's ledger rows, without each part's counts. The counts here are the transaction's; its first part stores
    them.
    """

    kind: Literal["stream", "retry"]
    generation: int
    run_id: UUID
    transform_fingerprint: str
    spark_batch: int | None = None  # set only in a stream batch, as is the position
    start: Offsets | None = None
    end: Offsets | None = None
    open: OpenPartitions | None = None
    input_events: int = 0
    dead_letters: int = 0
    duplicate_events: int = 0


def insert_rows(
    connection: Connection,
    entry: LedgerEntry,
    parts: Sequence[Sequence[OutputRow]],
    batches: range,
    lanes: int,
) -> None:
    """Insert one ledger row for each part and wake the lanes that have rows. Call last in the transaction."""
    for part, (batch_id, rows) in enumerate(zip(batches, parts, strict=True)):
        first = part == 0
        connection.execute(
            _LEDGER["insert_batch"],
            {
                "batch_id": batch_id,
                "kind": entry.kind,
                "generation": entry.generation,
                "spark_batch": entry.spark_batch,
                "part": part,
                "run_id": entry.run_id,
                "start_offsets": None if entry.start is None else Jsonb(entry.start.to_json()),
                "end_offsets": None if entry.end is None else Jsonb(entry.end.to_json()),
                "open_state": None if entry.open is None else Jsonb(entry.open.to_json()),
                "input_events": entry.input_events if first else 0,
                "sessions": sum(row.sessions for row in rows),
                "output_events": sum(row.outputs for row in rows),
                "output_bytes": sum(row.size for row in rows),
                "dead_letters": entry.dead_letters if first else 0,
                "duplicate_events": entry.duplicate_events if first else 0,
                "transform_fingerprint": entry.transform_fingerprint,
            },
        )
    woken = sorted({row.lane_hash % lanes for rows in parts for row in rows})
    connection.execute(
        _LEDGER["notify_batch"],
        {"batch_id": batches[-1], "lanes": ",".join(map(str, woken))},
    )
