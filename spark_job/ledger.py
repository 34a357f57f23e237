"""Reading and writing generations and the ledger: the tables that say where the job is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow, dict_row
from psycopg.types.json import Jsonb

from db.statements import statement
from spark_job.offsets import Offsets, TopicPartition

Connection = psycopg.Connection[TupleRow]


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

    @property
    def directory(self) -> str:
        """The name of its directory below the checkpoint root."""
        return f"gen-{self.number}-{self.directory_token}"

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
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(statement("spark_job", "newest_generation")).fetchone()
    return Generation.from_row(row) if row else None


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
