"""A restore or a rescale that a person asks for: what it would do, and the report of what was done."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from db.errors import SettingsError
from db.settings import Settings
from db.statements import statement
from spark_job import opening, position, savepoints
from spark_job.kafka_input import InputTopics, KafkaInput
from spark_job.ledger import Connection, Generation
from spark_job.recovery import Opening
from spark_job.requests import Kind
from spark_job.savepoints import Savepoint


@dataclass(frozen=True)
class Move:
    """The generation that would be opened now, and what the outbox has of what it reads again."""

    opening: Opening
    savepoint: Savepoint | None
    sessions: int  # in the outbox already, closing at or after the savepoint
    outputs: int

    def lines(self, topics: Mapping[str, str]) -> list[str]:
        """Say what would happen, for people. `topics`: {topic id: topic}."""
        opening = self.opening
        where = ", ".join(opening.start.named(topics))
        lines = [
            f"A new generation will be opened: {opening.text}.",
            f"It starts at {where}, and reads {opening.read_again:,} offsets again.",
        ]
        if self.savepoint:
            lines.append(
                f"The savepoint is {self.savepoint.place}, made {self.savepoint.created_at:%F %T} UTC."
            )
            found = f"{self.sessions:,} sessions with {self.outputs:,} outputs that closed since"
            lines.append(
                f"{found} are computed again and sent again, with outbox-revision {opening.revision}; what was sent before stays."
                if opening.policy == "reissue"
                else f"{found} are in the outbox already and are not sent again."
            )
        if opening.lost:
            lines.append(
                f"Not read, because Kafka has deleted it: {sum(b - a for a, b in opening.lost.values()):,} offsets."
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON-ready values."""
        opening = self.opening
        return {
            "reason": opening.reason,
            "policy": opening.policy,
            "revision": opening.revision,
            "savepoint": opening.savepoint,
            "start_offsets": opening.start.to_json(),
            "high_water": opening.high_water.to_json(),
            "read_again": opening.read_again,
            "sessions_closed_since": self.sessions,
            "outputs_closed_since": self.outputs,
            "offsets_lost": sum(b - a for a, b in opening.lost.values()),
            "explanation": opening.text,
        }


def preview(
    connection: Connection,
    settings: Settings,
    kafka: KafkaInput,
    topics: InputTopics,
    kind: Kind,
    arguments: Mapping[str, Any],
) -> Move:
    """Return what a restore or a rescale would do now. Raises SettingsError or ContinuityError where it would be refused."""
    at = position.read(connection)
    if at is None:
        raise SettingsError(
            "no job has ever started on this outbox: there is nothing to go on from. `spark-job run` starts one."
        )
    decision = opening.as_asked(connection, at, kind, arguments, opening.read_input(settings, kafka, topics))
    savepoint = savepoints.get(connection, arguments["savepoint"]) if kind == "restore" else None
    sessions, outputs = closed_since(connection, savepoint) if savepoint else (0, 0)
    return Move(decision, savepoint, sessions, outputs)


def closed_since(connection: Connection, savepoint: Savepoint) -> tuple[int, int]:
    """Return (sessions, outputs) in the outbox that close at or after a savepoint: each session once, with the outputs sent last."""
    row = connection.execute(
        statement("spark_job", "closed_since"),
        {
            "batch_id": savepoint.batch_id,
            "generation": savepoint.generation,
            "done": Jsonb(savepoint.done.to_json()),
        },
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def report(generation: Generation) -> dict[str, Any]:
    """Return what a generation resumes from, in the words of a start's report (`spark-job status --json`)."""
    return {
        "generation": generation.number,
        "restored": "savepoint" if generation.savepoint else "new_generation",
        "reason": generation.reason,
        "savepoint": generation.savepoint,
        "policy": generation.policy,
        "revision": generation.revision,
        "buckets": generation.buckets,
        "shuffle_partitions": generation.shuffle_partitions,
        "resumes_at": generation.start.to_json(),
        "high_water": generation.high_water.to_json(),
        "read_again": generation.read_again,
        "explanation": generation.explanation,
    }
