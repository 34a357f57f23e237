"""`savepoint restore` and `fork` open a generation while no job runs. A fork refuses a savepoint that does not fit its input.

ledger/savepoints.py says what a savepoint contains, recovery/savepoint_restore.py where a restore begins.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from uuid import UUID, uuid4

from db import operations
from db.connection import Connection, connect
from db.migrate import require_current
from service.errors import SettingsError
from service.settings import Settings
from spark_job.input.topics import KafkaInput
from spark_job.ledger import ownership, position
from spark_job.ledger.generations import Generation
from spark_job.recovery import findings
from spark_job.recovery.findings import AcceptedRisks, Finding, From, Input
from spark_job.recovery.savepoint_restore import Restore, open_restored
from spark_job.recovery.start import open_generation, read_input
from spark_job.savepoints.exported import ExportedSavepoint


def restore(settings: Settings, asked: Restore) -> Generation:
    """Open the generation that a restore asks for; the next start of the job continues with it.

    Raises FencedError while a job lives, ContinuityError if a risk must be accepted first, SettingsError if the outbox has no generation
    or the savepoint is unknown.
    """
    with _owned(settings) as (connection, run_id, now):
        at = position.read(connection)
        if at is None:
            raise SettingsError("the outbox has no generation yet: start the job first, with `spark-job run`")
        generation = open_generation(connection, at, open_restored(connection, at, asked, now), run_id)
        arguments = {"savepoint": asked.savepoint, "policy": asked.policy, **asdict(asked.accepted)}
        _record(connection, "spark-job savepoint restore", arguments, generation)
        return generation


def fork(settings: Settings, exported: ExportedSavepoint, accepted: AcceptedRisks, file: str) -> Generation:
    """Open the first generation of an empty outbox at a savepoint exported from another outbox.

    Raises SettingsError if the outbox is not empty or reads other topics, ContinuityError if a risk must be accepted first, FencedError
    while a job lives.
    """
    with _owned(settings) as (connection, run_id, now):
        if position.read(connection) is not None:
            raise SettingsError(
                "this outbox is not empty: a fork begins an outbox of its own, in another database ([postgres] dsn)"
            )
        _same_input(exported, now)
        opening = findings.open_wanted(
            From(
                position.with_added(exported.end, exported.topics, now.earliest),
                exported.open,
                exported.lineage,
                exported.topics,
                exported.assembly,
                "skip",
                0,
            ),
            Finding("fork", f"forked from savepoint {exported.name!r} of outbox {exported.outbox_uuid}"),
            now,
            accepted,
            greatest_revision=0,
            command=f"spark-job fork {file}",
        )
        generation = open_generation(connection, None, opening, run_id)
        arguments = {"file": file, "savepoint": exported.name, **asdict(accepted)}
        _record(connection, "spark-job fork", arguments, generation)
        return generation


def _record(
    connection: Connection, command: str, arguments: Mapping[str, Any], generation: Generation
) -> None:
    result = {"generation": generation.number, "explanation": generation.explanation}
    operations.record(connection, command, arguments, result)


def _same_input(exported: ExportedSavepoint, now: Input) -> None:
    """Raise SettingsError unless the settings read the topics of the savepoint, on the same cluster."""
    wanted, read = set(exported.topics.values()), set(now.topic_ids)
    if missing := sorted(wanted - read):
        raise SettingsError(
            f"the savepoint covers topics {', '.join(sorted(wanted))}; [source] topics lacks {', '.join(missing)}"
        )
    other = [topic for topic_id, topic in exported.topics.items() if now.topic_ids[topic] != topic_id]
    if other:
        raise SettingsError(
            f"topic {', '.join(other)} has another id here than in the savepoint: it was created again, or this is another Kafka cluster. "
            "The savepoint's offsets do not apply to it; start the job without a fork"
        )


@contextmanager
def _owned(settings: Settings) -> Iterator[tuple[Connection, UUID, Input]]:
    """Run the block in a transaction that owns the outbox; yield the connection, run id and current input."""
    run_id = uuid4()
    with connect(settings.postgres, "spark-job restore", autocommit=True) as connection:
        require_current(connection)
        kafka = KafkaInput(settings.kafka, settings.source.topics, "")
        topics = kafka.describe()
        with connection.transaction():
            ownership.take_over(connection, run_id, settings.job, force=False)
            # Read after the takeover, so that the bounds include the last owner's last commit.
            yield connection, run_id, read_input(settings, kafka, topics)
            ownership.give_back(connection, run_id)
