"""Generations: periods with the same assembly rules and revision.

A new generation opens at the very first start, at a fork or restore, if topics were added or a release has newer assembly rules, and if
a person accepts a changed topic, a loss or changed assembly rules. A crash never opens one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import Offsets
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.rules_lineage import Lineage

_GENERATIONS = queries("spark_job", "generations")


@dataclass(frozen=True)
class Generation:
    """A row of outbox.generation."""

    number: int
    start: Offsets
    """The position at which it begins."""
    open: OpenPartitions
    """What is open there."""
    lineage: Lineage
    topics: Mapping[str, str]
    """{topic id: topic} of the input when it was opened."""
    reason: str
    policy: str
    revision: int
    assembly: Mapping[str, Any]
    explanation: str = ""
    from_generation: int | None = None
    """With `from_batch`, the position that it continues."""
    from_batch: int | None = None
    savepoint: str | None = None
    cut: Offsets = field(default_factory=Offsets)
    """From these offsets on, Kafka assigns offsets a second time."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `newest` in sql/generations.sql."""
        return cls(
            number=row["generation"],
            start=Offsets.from_json(row["start_offsets"]),
            open=OpenPartitions.from_json(row["open_state"]),
            lineage=Lineage.from_json(row["lineage"]),
            topics=row["topics"],
            reason=row["reason"],
            policy=row["policy"],
            revision=row["revision"],
            assembly=row["assembly"],
            explanation=row["explanation"],
            from_generation=row["from_generation"],
            from_batch=row["from_batch"],
            savepoint=row["savepoint"],
            cut=Offsets.from_json(row["cut_offsets"] or {}),
        )


def newest_generation(connection: Connection, before: int | None = None) -> Generation | None:
    """Return the newest generation, or the newest one before `before`; None if there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_GENERATIONS["newest"], {"before": before}).fetchone()
    return Generation.from_row(row) if row else None


def assembly_of_generation(connection: Connection, generation: int) -> Mapping[str, Any]:
    """Return the assembly rules of a generation that exists."""
    row = connection.execute(_GENERATIONS["assembly"], {"generation": generation}).fetchone()
    assert row is not None, f"generation {generation} is not in the outbox"
    return row[0]  # type: ignore[no-any-return]


def greatest_revision(connection: Connection) -> int:
    """Return the greatest revision of all generations, 0 in an empty outbox."""
    row = connection.execute(_GENERATIONS["greatest_revision"]).fetchone()
    assert row is not None
    return int(row[0])


def insert(
    connection: Connection,
    generation: Generation,
    run_id: UUID,
    accepted_deliveries: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Insert a generation; call under the writer lock.

    `accepted_deliveries`: deliveries of batches that the ledger has lost, as a person has accepted them, JSON-ready.
    """
    connection.execute(
        _GENERATIONS["insert"],
        {
            "generation": generation.number,
            "start_offsets": Jsonb(generation.start.to_json()),
            "open_state": Jsonb(generation.open.to_json()),
            "lineage": Jsonb(generation.lineage.to_json()),
            "topics": Jsonb(dict(generation.topics)),
            "reason": generation.reason,
            "policy": generation.policy,
            "revision": generation.revision,
            "assembly": Jsonb(dict(generation.assembly)),
            "explanation": generation.explanation,
            "from_generation": generation.from_generation,
            "from_batch": generation.from_batch,
            "savepoint": generation.savepoint,
            "cut_offsets": Jsonb(generation.cut.to_json()) if generation.cut else None,
            "accepted_deliveries": Jsonb(list(accepted_deliveries)) if accepted_deliveries else None,
            "run_id": run_id,
        },
    )
