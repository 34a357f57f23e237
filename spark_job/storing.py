"""The statements of the sink's transaction: rows, dead letters, bucket summaries, and last the ledger row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from db.fault_points import reach
from db.statements import statement
from spark_job import batch, ledger, pgcopy
from spark_job.batch import BatchResult, Letter, OutputRow, Summary
from spark_job.continuity import BatchRange
from spark_job.ledger import Generation
from spark_job.offsets import Offsets

Connection = psycopg.Connection[TupleRow]


def copy_rows(
    connection: Connection, rows: Sequence[OutputRow], batch_id: int, lanes: int, revision: int
) -> None:
    """COPY the rows of one part. A second row of a key in a batch breaks the unique constraint and ends the transaction."""
    if not rows:
        return
    with connection.cursor() as cursor, cursor.copy(statement("spark_job", "copy_session_output")) as copy:
        copy.write(pgcopy.HEADER)
        for row in rows:
            copy.write(row.copy(batch_id, lanes, revision))
            reach("sink.during_copy")
        copy.write(pgcopy.TRAILER)


def insert_letters(
    connection: Connection,
    letters: Sequence[Letter],
    generation: Generation,
    topic_names: Mapping[str, str],
    batch_id: int,
) -> dict[str, int]:
    """Insert the letters that are not there yet; return how many were new, by reason. `topic_names`: {topic id: topic}."""
    if not letters:
        return {}
    connection.execute(statement("spark_job", "create_letter_stage"))
    with connection.cursor() as cursor, cursor.copy(statement("spark_job", "copy_letter_stage")) as copy:
        copy.write(pgcopy.HEADER)
        for letter in letters:
            below = letter.closing_offset < generation.high_water.at(letter.where)
            copy.write(_letter_row(letter, topic_names[letter.where.topic_id], below_high_water=below))
        copy.write(pgcopy.TRAILER)
    new = connection.execute(
        statement("spark_job", "insert_letters"),
        {"revision": generation.revision, "generation": generation.number, "batch_id": batch_id},
    )
    return dict(new.fetchall())


def upsert_buckets(
    connection: Connection, summaries: Sequence[Summary], generation: int, batch_id: int
) -> None:
    """Keep the last summary of each bucket: one without new data sends none (design §3.1).

    One statement, never executemany: psycopg ends its pipeline with a Flush behind the answer, by which Postgres takes the session for
    busy, and a process that stood still then would hold the writer lock without idle_in_transaction_session_timeout ever ending it.
    """
    connection.execute(
        statement("spark_job", "upsert_buckets"),
        {
            "generation": generation,
            "batch_id": batch_id,
            "buckets": [summary.bucket for summary in summaries],
            "open_sessions": [summary.open_sessions for summary in summaries],
            "open_events": [summary.open_events for summary in summaries],
            "open_bytes": [summary.open_bytes for summary in summaries],
            "state_bytes": [summary.state_bytes for summary in summaries],
            "oldest_open": [Jsonb(summary.oldest.to_json()) for summary in summaries],
        },
    )


@dataclass(frozen=True)
class LedgerEntry:
    """What the ledger rows of one transaction say, beside their rows. What is counted once a transaction stands on its first part."""

    kind: Literal["stream", "retry"]
    generation: int
    run_id: UUID
    transform_fingerprint: str
    spark_batch: int | None = None  # this and the offsets: of a stream batch only
    start: Offsets | None = None
    end: Offsets | None = None
    done: Offsets | None = None
    safe: Offsets | None = None
    input_events: int = 0
    dead_letters: int = 0
    duplicate_events: int = 0
    skipped_sessions: int = 0


def stream_entry(
    connection: Connection,
    generation: Generation,
    spark_batch: int,
    planned: BatchRange,
    result: BatchResult,
    *,
    run_id: UUID,
    transform_fingerprint: str,
    dead_letters: int,
    skipped: int,
) -> LedgerEntry:
    """Return the entry of a Spark batch; call when its bucket summaries are stored."""
    oldest = ledger.oldest_open(connection, generation.number)
    return LedgerEntry(
        "stream",
        generation.number,
        run_id,
        transform_fingerprint,
        spark_batch=spark_batch,
        start=planned.start,
        end=planned.end,
        done=planned.end.max(generation.high_water),
        safe=Offsets({where: oldest.get(where, end) for where, end in planned.end.items()}),
        input_events=result.counts.get("events", 0),
        dead_letters=dead_letters,
        duplicate_events=result.counts.get("duplicates", 0),
        skipped_sessions=skipped,
    )


def insert_ledger_rows(
    connection: Connection, entry: LedgerEntry, parts: Sequence[Sequence[OutputRow]], first_id: int
) -> None:
    """Insert one ledger row for each part and wake the publisher. Call last in the transaction."""
    for part, rows in enumerate(parts):
        first = part == 0
        connection.execute(
            statement("spark_job", "insert_batch"),
            {
                "batch_id": first_id + part,
                "kind": entry.kind,
                "generation": entry.generation,
                "spark_batch": entry.spark_batch,
                "part": part,
                "run_id": entry.run_id,
                "start_offsets": _json(entry.start),
                "end_offsets": _json(entry.end),
                "done_offsets": _json(entry.done),
                "safe_offsets": _json(entry.safe),
                "input_events": entry.input_events if first else 0,
                "sessions": sum(row.sessions for row in rows),
                "output_events": sum(row.outputs for row in rows),
                "output_bytes": sum(row.size for row in rows),
                "dead_letters": entry.dead_letters if first else 0,
                "duplicate_events": entry.duplicate_events if first else 0,
                "skipped_sessions": entry.skipped_sessions if first else 0,
                "content_hash": batch.content_hash(rows),
                "transform_fingerprint": entry.transform_fingerprint,
            },
        )
    connection.execute(statement("spark_job", "notify_batch"), {"batch_id": first_id + len(parts) - 1})


def _json(offsets: Offsets | None) -> Jsonb | None:
    return None if offsets is None else Jsonb(offsets.to_json())


def _letter_row(letter: Letter, topic: str, *, below_high_water: bool) -> bytes:
    return pgcopy.count(15) + b"".join(
        [
            pgcopy.data(letter.where.topic_id.encode()),
            pgcopy.data(topic.encode()),
            pgcopy.int4(letter.where.partition),
            pgcopy.int8(letter.first_offset),
            pgcopy.int8(letter.last_offset),
            pgcopy.int8(letter.closing_offset),
            pgcopy.data(letter.reason.encode()),
            pgcopy.nullable(None if letter.key is None else letter.key.encode()),
            pgcopy.data(letter.detail.encode()),
            pgcopy.int4(letter.event_count),
            pgcopy.array(pgcopy.INT8, letter.kept, letter.offsets),
            pgcopy.array(pgcopy.INT8, letter.kept, letter.times_ms),
            pgcopy.array(pgcopy.BYTEA, letter.kept, letter.values),
            pgcopy.NULL if letter.types is None else pgcopy.array(pgcopy.TEXT, letter.kept, letter.types),
            pgcopy.data(b"\x01" if below_high_water else b"\x00"),
        ]
    )
