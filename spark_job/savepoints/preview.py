"""Show what a restore would do, and report what it did."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from db.connection import Connection
from db.statements import queries
from service.errors import SettingsError
from service.settings import Settings
from spark_job.input.topics import InputTopics, KafkaInput
from spark_job.ledger import position, savepoints
from spark_job.ledger.generations import Generation
from spark_job.ledger.savepoints import Savepoint
from spark_job.recovery.findings import Opening
from spark_job.recovery.savepoint_restore import Restore, open_restored
from spark_job.recovery.start import read_input

_LEDGER = queries("spark_job", "ledger")


@dataclass(frozen=True)
class Preview:
    """The generation that would be opened now, and how much in the outbox would be computed again."""

    opening: Opening
    savepoint: Savepoint | None
    """None if the restore skips to the greatest position."""
    sessions: int
    """Sessions in batches after the savepoint. A session that was sent in several revisions counts once for each."""
    outputs: int

    def lines(self, topics: Mapping[str, str]) -> list[str]:
        """Describe what would happen, for people. `topics`: {topic id: topic}."""
        opening = self.opening
        lines = [
            f"A new generation will be opened: {opening.text}.",
            f"It continues at {', '.join(opening.start.named(topics))}.",
        ]
        if self.savepoint is not None:
            lines.append(
                f"The savepoint is {self.savepoint.place}, made {self.savepoint.created_at:%F %T} UTC."
            )
            lines.append(
                f"Sessions that closed since are computed and sent again, with outbox-revision {opening.revision}: the outbox has "
                f"{self.sessions:,} sessions with {self.outputs:,} outputs in the batches after it. Outputs sent before stay."
            )
        else:
            lines.append("Nothing that is in the outbox already is computed or sent again.")
        if opening.lost:
            lost = sum(b - a for a, b in opening.lost.values())
            lines.append(f"Not read, because Kafka has deleted them: {lost:,} offsets.")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the preview as JSON-ready values."""
        opening = self.opening
        return {
            "reason": opening.reason,
            "policy": opening.policy,
            "revision": opening.revision,
            "savepoint": opening.savepoint,
            "start_offsets": opening.start.to_json(),
            "sessions_closed_since": self.sessions,
            "outputs_closed_since": self.outputs,
            "offsets_lost": sum(b - a for a, b in opening.lost.values()),
            "explanation": opening.text,
        }


def preview(
    connection: Connection, settings: Settings, kafka: KafkaInput, topics: InputTopics, asked: Restore
) -> Preview:
    """Return what a restore would do now. Raises SettingsError or ContinuityError if it would be refused."""
    at = position.read(connection)
    if at is None:
        raise SettingsError(
            "no job has ever started on this outbox: there is nothing to continue from. `spark-job run` starts one."
        )
    opening = open_restored(connection, at, asked, read_input(settings, kafka, topics))
    if asked.savepoint is None:
        return Preview(opening, None, 0, 0)
    savepoint = savepoints.get(connection, asked.savepoint)
    row = connection.execute(_LEDGER["closed_since"], {"batch_id": savepoint.batch_id or 0}).fetchone()
    assert row is not None
    return Preview(opening, savepoint, row[0], row[1])


def report(generation: Generation) -> dict[str, Any]:
    """Return what a generation resumes from, with the keys of a start's report (`spark-job status --json`)."""
    return {
        "generation": generation.number,
        "restored": "savepoint",
        "reason": generation.reason,
        "savepoint": generation.savepoint,
        "policy": generation.policy,
        "revision": generation.revision,
        "resumes_at": generation.start.to_json(),
        "open_sessions": sum(each.sessions for each in generation.open.values()),
        "explanation": generation.explanation,
    }
