"""New generations: from a decision to the row, and the two kinds that a person asks for, restore and rescale."""

import secrets
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID, uuid4

from db.connection import connect
from db.errors import SettingsError
from db.migrate import require_current
from db.settings import Settings
from spark_job import ledger, position, recovery, savepoints, writer
from spark_job.assembly import described, fingerprint
from spark_job.failures import explained
from spark_job.kafka_input import InputTopics, KafkaInput
from spark_job.ledger import Connection, Generation
from spark_job.offsets import Offsets
from spark_job.position import Position
from spark_job.recovery import Accepted, Input, Opening, Wanted
from spark_job.requests import Kind
from spark_job.savepoints import Savepoint

Policy = Literal["skip", "reissue"]


def insert(
    connection: Connection,
    opening: Opening,
    position: Position | None,
    topic_names: Mapping[str, str],
    run_id: UUID,
    *,
    after: int = 0,
) -> Generation:
    """Insert the generation; call in a transaction that holds the writer lock.

    `topic_names`: {topic id: topic}. `after`: a generation number that is taken although the ledger does not know it.
    """
    newest = position.generation.number if position else 0
    generation = Generation(
        number=max(newest, after) + 1,
        directory_token=secrets.token_hex(4),
        start=opening.start,
        high_water=opening.high_water,
        topics=dict(topic_names),
        reason=opening.reason,
        policy=opening.policy,
        revision=opening.revision,
        assembly=opening.assembly,
        assembly_fingerprint=fingerprint(opening.assembly),
        from_generation=position.generation.number if position else None,
        from_batch=position.batch_id if position else None,
        savepoint=opening.savepoint,
        read_again=opening.read_again,
        explanation=opening.text,
        cut=opening.cut,
    )
    ledger.insert_generation(connection, generation, run_id)
    return generation


def read_input(settings: Settings, kafka: KafkaInput, topics: InputTopics) -> Input:
    """Ask Kafka for the bounds of the input. Raises UnavailableError."""
    earliest, latest = kafka.bounds(topics, "earliest"), kafka.bounds(topics, "latest")
    return Input(topics.ids, earliest, latest, described(settings))


def open_by_command(settings: Settings, kind: Kind, arguments: Mapping[str, Any]) -> Generation:
    """Open the generation that a command asks for, where no job runs; the next start of the job uses it.

    `arguments`: as in `requests.Request`. Raises FencedError while a job lives, ContinuityError where something is to be accepted first,
    SettingsError where the outbox has no generation or the arguments are wrong.
    """
    run_id = uuid4()
    with explained(), connect(settings.postgres, f"spark-job {kind}", autocommit=True) as connection:
        require_current(connection)
        kafka = KafkaInput(settings.kafka, settings.source.topics, "")
        topics = kafka.describe()
        with connection.transaction():
            writer.take_over(connection, run_id, settings.job, force=False)
            now = read_input(settings, kafka, topics)  # after the last owner's last commit
            at = position.read(connection)
            if at is None:
                raise SettingsError(
                    "the outbox has no generation yet: start the job first, with `spark-job run`"
                )
            decision = as_asked(connection, at, kind, arguments, now)
            generation = insert(connection, decision, at, topics.names, run_id)
            writer.give_back(connection, run_id)
    return generation


def as_asked(
    connection: Connection, at: Position, kind: Kind, arguments: Mapping[str, Any], now: Input
) -> Opening:
    """Return the generation that a restore or a rescale would open at `at`.

    Raises SettingsError where its savepoint is unknown or its numbers do not fit, ContinuityError where something is to be accepted first.
    """
    return recovery.open_wanted(
        at,
        _wanted(connection, at, kind, arguments),
        now,
        Accepted(data_loss=bool(arguments.get("accept_data_loss"))),
        greatest_revision=ledger.greatest_revision(connection),
    )


def _wanted(connection: Connection, at: Position, kind: Kind, arguments: Mapping[str, Any]) -> Wanted:
    if kind == "rescale":
        return rescale(at, arguments["buckets"], arguments["shuffle_partitions"])
    return restore(
        at,
        savepoints.get(connection, arguments["savepoint"]),
        arguments["policy"],
        greatest_done=savepoints.greatest_done(connection),
        greatest_revision=ledger.greatest_revision(connection),
    )


def restore(
    position: Position,
    savepoint: Savepoint,
    policy: Policy,
    *,
    greatest_done: Offsets,
    greatest_revision: int,
) -> Wanted:
    """Return the generation that restores a savepoint.

    `skip`: what any generation has dealt with is not written again. `reissue`: what closes from the savepoint on is computed
    and sent again, with a revision that no generation had before.
    """
    reissue = policy == "reissue"
    return Wanted(
        reason="savepoint",
        start=savepoint.safe,
        high_water=savepoint.done if reissue else greatest_done,
        policy=policy,
        revision=greatest_revision + 1 if reissue else position.generation.revision,
        assembly=position.generation.assembly,
        text=f"restored from savepoint {savepoint.name!r} ({policy})",
        savepoint=savepoint.name,
    )


def rescale(position: Position, buckets: int, shuffle_partitions: int) -> Wanted:
    """Return the generation that goes on at the current position with another parallelism.

    Raises SettingsError where the buckets would not fill the partitions evenly.
    """
    if buckets % shuffle_partitions:
        raise SettingsError(
            f"{buckets} buckets cannot be spread evenly over {shuffle_partitions} shuffle partitions: choose a multiple of them"
        )
    now = position.generation
    return Wanted(
        reason="rescale",
        start=position.safe,
        high_water=position.done,
        policy=now.policy,
        revision=now.revision,
        assembly={**now.assembly, "buckets": buckets, "shuffle_partitions": shuffle_partitions},
        text=f"rescaled from {now.buckets} to {buckets} buckets, from {now.shuffle_partitions} to {shuffle_partitions} shuffle partitions",
    )
