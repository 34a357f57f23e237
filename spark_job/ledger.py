"""Reading and writing generations and the ledger: the tables that say where the job is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow, dict_row
from psycopg.types.json import Jsonb

from db.statements import statement
from spark_job.offsets import Offsets, TopicPartition

Connection = psycopg.Connection[TupleRow]

OPENED_BY_COMMAND = ("savepoint", "rescale")
"""Reasons of generations that a command may have opened, without a look at the checkpoint."""


@dataclass(frozen=True)
class Generation:
    """A period in which one Spark checkpoint is in force."""

    number: int
    directory_token: str
    start: Offsets
    high_water: Offsets
    topics: Mapping[str, str]  # {topic id: topic} of the input when it was opened
    reason: str
    policy: str
    revision: int
    assembly: Mapping[str, Any]
    assembly_fingerprint: str
    from_generation: int | None = None  # the position that it continues
    from_batch: int | None = None
    savepoint: str | None = None
    read_again: int = 0
    explanation: str = ""
    cut: Offsets = field(default_factory=Offsets)  # from these offsets on, Kafka gives them out a second time

    @property
    def buckets(self) -> int:
        """Groups of keys whose state is kept together."""
        return int(self.assembly["buckets"])

    @property
    def shuffle_partitions(self) -> int:
        """Tasks that assemble at once."""
        return int(self.assembly["shuffle_partitions"])

    @property
    def directory(self) -> str:
        """The name of its directory below the checkpoint root."""
        return directory_name(self.number, self.directory_token)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of outbox.generation."""
        return cls(
            number=row["generation"],
            directory_token=row["directory_token"],
            start=Offsets.from_json(row["start_offsets"]),
            high_water=Offsets.from_json(row["high_water"]),
            topics=row["topics"],
            reason=row["reason"],
            policy=row["policy"],
            revision=row["revision"],
            assembly=row["assembly"],
            assembly_fingerprint=row["assembly_fingerprint"],
            from_generation=row["from_generation"],
            from_batch=row["from_batch"],
            savepoint=row["savepoint"],
            read_again=row["read_again"],
            explanation=row["explanation"],
            cut=Offsets.from_json(row["cut_offsets"] or {}),
        )


@dataclass(frozen=True)
class StreamBatch:
    """The ledger's row of a Spark batch (its first part)."""

    batch_id: int
    spark_batch: int
    start: Offsets
    end: Offsets
    done: Offsets
    safe: Offsets
    created_at: datetime


def newest_generation(connection: Connection) -> Generation | None:
    """Return the newest generation, or None in an empty outbox."""
    return _generation(connection, None)


def read_generation(connection: Connection, number: int) -> Generation:
    """Return a generation that exists."""
    found = _generation(connection, number)
    assert found is not None, f"generation {number} is named by a foreign key"
    return found


def _generation(connection: Connection, number: int | None) -> Generation | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(statement("spark_job", "generation"), {"generation": number}).fetchone()
    return Generation.from_row(row) if row else None


def directories(connection: Connection) -> tuple[set[str], int]:
    """Return the names of all generations' directories, and the newest generation that a start of the job opened by itself (0: none).

    That start has looked at the checkpoint's folder; one that a command opened has not.
    """
    rows = connection.execute(statement("spark_job", "directories")).fetchall()
    names = {directory_name(number, token) for number, token, _ in rows}
    return names, max((number for number, _, reason in rows if reason not in OPENED_BY_COMMAND), default=0)


def directory_name(generation: int, token: str) -> str:
    """Return the name of a generation's directory below the checkpoint root."""
    return f"gen-{generation}-{token}"


def greatest_revision(connection: Connection) -> int:
    """Return the greatest revision of all generations, 0 in an empty outbox."""
    row = connection.execute(statement("spark_job", "greatest_revision")).fetchone()
    assert row is not None
    return int(row[0])


def newest_stream_batch(connection: Connection, generation: int) -> StreamBatch | None:
    """Return the newest stream row of a generation, or None where it has none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(
            statement("spark_job", "newest_stream_batch"), {"generation": generation}
        ).fetchone()
    if row is None:
        return None
    return StreamBatch(
        batch_id=row["batch_id"],
        spark_batch=row["spark_batch"],
        start=Offsets.from_json(row["start_offsets"]),
        end=Offsets.from_json(row["end_offsets"]),
        done=Offsets.from_json(row["done_offsets"]),
        safe=Offsets.from_json(row["safe_offsets"]),
        created_at=row["created_at"],
    )


def insert_generation(connection: Connection, generation: Generation, run_id: UUID) -> None:
    """Insert a generation; call under the writer lock."""
    connection.execute(
        statement("spark_job", "insert_generation"),
        {
            "generation": generation.number,
            "directory_token": generation.directory_token,
            "start_offsets": Jsonb(generation.start.to_json()),
            "high_water": Jsonb(generation.high_water.to_json()),
            "topics": Jsonb(dict(generation.topics)),
            "reason": generation.reason,
            "policy": generation.policy,
            "revision": generation.revision,
            "assembly": Jsonb(dict(generation.assembly)),
            "assembly_fingerprint": generation.assembly_fingerprint,
            "from_generation": generation.from_generation,
            "from_batch": generation.from_batch,
            "savepoint": generation.savepoint,
            "read_again": generation.read_again,
            "explanation": generation.explanation,
            "cut_offsets": Jsonb(generation.cut.to_json()) if generation.cut else None,
            "run_id": run_id,
        },
    )


def insert_first_lane_epoch(connection: Connection, lanes: int) -> None:
    """Insert lane epoch 1 into an outbox that has none; call under the writer lock."""
    connection.execute(statement("spark_job", "insert_first_lane_epoch"), {"lanes": lanes})


def next_batch(connection: Connection) -> tuple[int, int]:
    """Return (the next batch_id, the current epoch's lanes); call under the writer lock."""
    row = connection.execute(statement("spark_job", "next_batch")).fetchone()
    assert row is not None
    return row[0], row[1]


def committed_hashes(connection: Connection, generation: int, spark_batch: int) -> list[bytes]:
    """Return the content hashes of a Spark batch's parts."""
    rows = connection.execute(
        statement("spark_job", "committed_hash"), {"generation": generation, "spark_batch": spark_batch}
    ).fetchall()
    return [row[1] for row in rows]


def oldest_open(connection: Connection, generation: int) -> dict[TopicPartition, int]:
    """Return the first offset of the oldest open session of each partition, over all buckets of the generation."""
    rows = connection.execute(statement("spark_job", "oldest_open"), {"generation": generation}).fetchall()
    return {TopicPartition(topic_id, partition): offset for topic_id, partition, offset in rows}


def ensure_partitions(connection: Connection, first_batch: int, last_batch: int) -> None:
    """Make the table partitions that hold these batches, in a transaction of its own."""
    with connection.transaction():
        connection.execute(
            statement("spark_job", "ensure_partitions"),
            {"first_batch": first_batch, "last_batch": last_batch},
        )
