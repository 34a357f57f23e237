"""The start: own the outbox, look at ledger, checkpoint and input, and decide where to resume. One transaction (design §3.4)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from db.errors import OutboxError, UnavailableError
from db.fault_points import reach
from db.settings import Settings
from db.statements import statement
from spark_job import (
    directory_fit,
    ledger,
    opening,
    position,
    published,
    recovery,
    requests,
    runs,
    writer,
)
from spark_job.checkpoint import CheckpointDirectory, unknown_directories
from spark_job.directory_fit import Fit
from spark_job.kafka_input import InputTopics, KafkaInput
from spark_job.ledger import Connection, Generation
from spark_job.position import Position
from spark_job.recovery import Accepted, Finding, Input, Opening, Resumption
from spark_job.requests import Request

log = structlog.get_logger()


class RequestRefusedError(OutboxError):
    """What was asked of the job cannot be done."""


@dataclass(frozen=True)
class Started:
    """What a start found and decided."""

    generation: Generation
    resumption: Resumption
    directory: CheckpointDirectory
    topics: InputTopics


@dataclass(frozen=True)
class Start:
    """What a start is given."""

    settings: Settings
    run_id: UUID
    attempt: int
    transform_fingerprint: str
    accepted: Accepted
    take_over: bool
    request: Request | None
    unusable: str | None = None  # why Spark could not use the checkpoint in the attempt before
    former_runs: Collection[UUID] = ()  # of the attempts before, in this process

    def run(
        self, connection: Connection, kafka: KafkaInput, topics: InputTopics, spark: SparkSession
    ) -> Started:
        """Take the outbox over, decide, and open a generation where one is needed.

        Raises FencedError while another run lives, ContinuityError where something is to be accepted first, RequestRefusedError where
        the request cannot be fulfilled. All leave the outbox as it was.
        """
        if self.take_over and (found := position.read(connection)) is not None:
            # A living owner must not be ended by a start that is then refused: what it does not change meanwhile is judged before.
            recovery.check_input(found, opening.read_input(self.settings, kafka, topics), self.accepted)
        with connection.transaction():
            writer.take_over(
                connection, self.run_id, self.settings.job, force=self.take_over, own=self.former_runs
            )
            # After the last commit of the owner before: bounds older than that would look as if Kafka had lost the input's end.
            now = opening.read_input(self.settings, kafka, topics)
            reach("start.after_take_over")
            ledger.insert_first_lane_epoch(connection, self.settings.publisher.lanes)
            at, decision, taken = self._decide(connection, topics, spark, now)
            reach("start.after_decision")
            if isinstance(decision, Opening):
                generation = opening.insert(connection, decision, at, topics.names, self.run_id, after=taken)
                reach("start.after_generation")
                restored = _restored(decision)
                text = (
                    decision.text
                    if decision.reason == "first"
                    else f"generation {generation.number} opened: {decision.text}"
                )
                resumption = Resumption(restored, 0, generation.start, decision.read_again, text)
            else:
                assert at is not None
                generation, resumption = at.generation, decision
            runs.record(
                connection,
                self.run_id,
                generation,
                resumption,
                attempt=self.attempt,
                transform_fingerprint=self.transform_fingerprint,
            )
            if self.request is not None:
                requests.answer(connection, self.request.request_id, "done", resumption.text)
            reach("start.after_run")
        reach("start.after_commit")
        directory = _directory(self.settings, spark, generation)
        directory.mark(_outbox_uuid(connection))
        return Started(generation, resumption, directory, topics)

    def _decide(
        self, connection: Connection, topics: InputTopics, spark: SparkSession, now: Input
    ) -> tuple[Position | None, Resumption | Opening, int]:
        """The position, what to do about it, and the greatest generation number found in the checkpoint's folder alone."""
        at = position.read(connection)
        outbox_uuid = _outbox_uuid(connection)
        known, above = ledger.directories(connection)
        unknown = unknown_directories(spark, self.settings.job.checkpoint, known, above, outbox_uuid)
        behind = [_unknown(unknown)] if unknown else []
        taken = max(unknown, default=0)
        if at is None:
            where = self.settings.source.starting_offsets
            start = now.earliest if where == "earliest" else now.latest
            return at, recovery.first(now, start, self.accepted, behind), taken
        fit, findings = self._look(connection, at, spark, outbox_uuid)
        if self.request is not None:
            if fit.kind == "ahead" or behind or findings:
                # The database lost its end between the request and now: the start without it says so.
                raise RequestRefusedError(
                    "the outbox may have lost its newest batches; the job's own start decides that first"
                )
            try:
                found = opening.as_asked(connection, at, self.request.kind, self.request.arguments, now)
            except OutboxError as error:
                raise RequestRefusedError(str(error)) from error
            return at, found, taken
        if fit.kind == "ahead" or any(f.reason == "outbox_behind" for f in (*behind, *findings)):
            findings.append(_repetitions(self.settings, connection, outbox_uuid))
        decision = recovery.decide(
            at,
            fit,
            now,
            self.accepted,
            greatest_revision=ledger.greatest_revision(connection),
            findings=[*behind, *findings],
        )
        return at, decision, taken

    def _look(
        self, connection: Connection, at: Position, spark: SparkSession, outbox_uuid: UUID
    ) -> tuple[Fit, list[Finding]]:
        """Compare the directory with the ledger; and what makes a lost one doubtful."""
        fit = _fit(self.settings, spark, at)
        if fit.kind in ("continues", "unused") and self.unusable:
            fit = Fit("lost", 0, at.safe, self.unusable)
        findings = []
        is_lost = fit.kind == "lost"
        former, seen = fit, at
        while former.kind == "unused" and seen.generation.reason in ledger.OPENED_BY_COMMAND:
            # The command has not looked at the checkpoint that was in force before, nor has one before it.
            assert seen.generation.from_generation is not None, (
                "a restore and a rescale continue a generation"
            )
            before = ledger.read_generation(connection, seen.generation.from_generation)
            seen = Position(before, ledger.newest_stream_batch(connection, before.number))
            former = _fit(self.settings, spark, seen)
            is_lost = former.kind == "lost"
            if former.kind == "ahead":
                findings.append(Finding("outbox_behind", former.text, "--accept-outbox-behind"))
        run = runs.newest(connection)
        if fit.kind == "unused" and run is not None and run.generation == at.generation.number:
            # A run had begun with it: its directory is gone as well, where the mark is not there.
            is_lost = is_lost or not _directory(self.settings, spark, at.generation).is_marked(outbox_uuid)
        if run is not None and run.server_changed:
            # No stop by itself: the checkpoint shows whether that server has all that the old one had.
            log.warning(
                "postgres_changed",
                system_identifier=(run.system_identifier, run.server_system_identifier),
                timeline=(run.timeline, run.server_timeline),
                checkpoint=fit.kind,
            )
        if is_lost and run is not None and run.server_changed:
            # Without the checkpoint nothing can show whether that server has all that the old one had.
            findings.append(
                Finding(
                    "outbox_behind",
                    f"Postgres is another server, or was promoted or restored, since the last start (system identifier, timeline: "
                    f"{run.system_identifier}, {run.timeline} -> {run.server_system_identifier}, {run.server_timeline}), and without the "
                    "checkpoint nothing shows whether it lost its newest batches; their outputs would go out again",
                    "--accept-outbox-behind",
                )
            )
        return fit, findings


def _fit(settings: Settings, spark: SparkSession, at: Position) -> Fit:
    directory = _directory(settings, spark, at.generation)
    return directory_fit.fit(at, directory.state(), directory.end_offsets, directory.uri)


def _directory(settings: Settings, spark: SparkSession, generation: Generation) -> CheckpointDirectory:
    path = f"{settings.job.checkpoint.rstrip('/')}/{generation.directory}"
    ids = {topic: topic_id for topic_id, topic in generation.topics.items()}
    return CheckpointDirectory(spark, path, ids)


def _unknown(unknown: Mapping[int, str]) -> Finding:
    return Finding(
        "outbox_behind",
        f"the checkpoint folder holds {', '.join(unknown.values())} of this outbox, whose generation the database does not know: it was "
        "restored or failed over to an older state",
        "--accept-outbox-behind",
    )


def _repetitions(settings: Settings, connection: Connection, outbox_uuid: UUID) -> Finding:
    """How many outputs would go out again, as far as the publisher's records tell."""
    row = connection.execute(statement("spark_job", "newest_batch")).fetchone()
    ledger_end = int(row[0]) if row else 0
    again = "outputs that are in Kafka already go out again, with equal outbox-ids"
    try:
        sent = published.newest_batch(settings, outbox_uuid)
    except UnavailableError as error:
        text = f"{again}; how many is unknown: {error}"
    else:
        batches = max(0, (sent or 0) - ledger_end)
        text = (
            f"{again}: at most those of {batches} batches (the ledger ends with batch {ledger_end}, the publisher's records with batch "
            f"{sent or 0})"
        )
    return Finding("outbox_behind", text, "--accept-outbox-behind")


def _restored(decision: Opening) -> str:
    if decision.reason == "first":
        return "fresh"
    return "savepoint" if decision.reason == "savepoint" else "new_generation"


def _outbox_uuid(connection: Connection) -> UUID:
    row: Any = connection.execute(statement("spark_job", "outbox_uuid")).fetchone()
    assert isinstance(row[0], UUID)
    return row[0]
