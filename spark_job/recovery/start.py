"""The start: take the outbox over, read its position, compare that with Kafka and the settings, and record the run. One transaction.

Every start is the same, after SIGTERM, kill -9, a lost machine or a failure inside the process. Postgres and Kafka are all that it needs.
It reads no open sessions: each partition's first task takes them from the cache or from Kafka (`assembly/task.py`).
It reads no Spark checkpoint: each query has its own, in a temporary directory (`stream/query.py`), so a lost checkpoint changes nothing.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from uuid import UUID

import structlog

from db import operations
from db.connection import Connection
from db.statements import queries
from service.errors import OutboxError
from service.lifecycle.fault_points import reach
from service.settings import Settings
from spark_job.input.offsets import Offsets
from spark_job.input.topics import InputTopics, KafkaInput
from spark_job.ledger import generations, ownership, position, requests, runs
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.ledger.batch_size import BatchSize, next_size
from spark_job.ledger.generations import Generation
from spark_job.ledger.position import InputPosition
from spark_job.ledger.requests import JobRequest
from spark_job.ledger.runs import Begun
from spark_job.recovery import findings, outbox_behind, starting_offsets
from spark_job.recovery.findings import AcceptedRisks, Input, Opening, Resumption
from spark_job.recovery.outbox_behind import Delivered
from spark_job.recovery.savepoint_restore import Restore, greatest_position, open_restored

_LEDGER = queries("spark_job", "ledger")

log = structlog.get_logger()


class RequestRefusedError(OutboxError):
    """The job cannot do what a command requested."""


@dataclass(frozen=True)
class Started:
    """What a start found and decided."""

    position: InputPosition
    begun: Begun
    size: BatchSize
    topics: InputTopics
    outbox_uuid: UUID


@dataclass(frozen=True)
class Start:
    """The arguments of a start."""

    settings: Settings
    run_id: UUID
    attempt: int
    transform_fingerprint: str
    accepted: AcceptedRisks
    take_over: bool
    request: JobRequest | None
    former_runs: Collection[UUID] = ()
    """The runs of earlier attempts in this process."""

    def run(self, connection: Connection, kafka: KafkaInput, topics: InputTopics) -> Started:
        """Take the outbox over, decide, and open a generation if one is needed.

        Raises FencedError while another run lives, ContinuityError if a risk must be accepted first, RequestRefusedError if the request
        cannot be fulfilled, WithdrawnError if its command has given up. All leave the outbox as it was.
        """
        outbox_uuid = _outbox_uuid(connection)
        delivered = outbox_behind.delivered_batches(connection, self.settings, outbox_uuid)
        if self.take_over:
            # Decide before the takeover, too: a start that is refused must not end a living owner.
            self._decide(connection, kafka, topics, delivered)
        with connection.transaction():
            ownership.take_over(
                connection, self.run_id, self.settings.job, force=self.take_over, own=self.former_runs
            )
            reach("start.after_take_over")
            connection.execute(_LEDGER["first_lane_epoch"], {"lanes": self.settings.publisher.lanes})
            decided = self._decide(connection, kafka, topics, delivered)
            reach("start.after_decision")
            at, begun, size = self._begin(connection, *decided)
            runs.record(
                connection,
                self.run_id,
                begun,
                attempt=self.attempt,
                transform_fingerprint=self.transform_fingerprint,
            )
            if self.request is not None:
                requests.answer(connection, self.request.request_id, "done", begun.explanation)
            flags = {"take_over": self.take_over, **asdict(self.accepted)}
            if any(flags.values()):
                # What a person decided with the flags of `spark-job run`.
                operations.record(
                    connection, "spark-job run", flags, {"run": self.run_id, "explanation": begun.explanation}
                )
            reach("start.after_run")
        reach("start.after_commit")
        return Started(at, begun, size, topics, outbox_uuid)

    def _decide(
        self, connection: Connection, kafka: KafkaInput, topics: InputTopics, delivered: list[Delivered]
    ) -> tuple[InputPosition | None, Resumption | Opening, list[Delivered]]:
        """Return the position, how the job continues from there, and the batches of `delivered` that the ledger has lost.

        Raises ContinuityError unless a person has accepted that loss and every other risk, RequestRefusedError for a request."""
        at = position.read(connection)
        read = None if at is None else greatest_position(connection).end
        lost, behind = outbox_behind.lost_batches(connection, delivered)
        # Read after the ledger: bounds older than its last commit would look as if Kafka had lost the input's end.
        now = read_input(self.settings, kafka, topics)
        if at is None:
            first = starting_offsets.resolve(self.settings.source.starting_offsets, kafka, topics, now)
            return at, findings.first(now, first.start, first.text, self.accepted, behind), lost
        if self.request is not None:
            if behind:
                # The database has lost its newest batches since the request. The next start, without the request, reports that.
                raise RequestRefusedError(
                    "the outbox may have lost its newest batches; the job's own start decides that first"
                )
            try:
                return at, open_restored(connection, at, Restore.of(self.request.arguments), now), lost
            except OutboxError as error:
                raise RequestRefusedError(str(error)) from error
        greatest = generations.greatest_revision(connection)
        decision = findings.continuation(
            at, now, self.accepted, greatest_revision=greatest, findings=behind, read=read
        )
        return at, decision, lost

    def _begin(
        self,
        connection: Connection,
        at: InputPosition | None,
        decision: Resumption | Opening,
        lost: list[Delivered],
    ) -> tuple[InputPosition, Begun, BatchSize]:
        """Open a generation if one is needed; return the run's position, what the run's row records of it, and the size of its batches."""
        most = self.settings.job.max_events_per_batch
        read = Offsets() if at is None else greatest_position(connection).end
        if isinstance(decision, Opening):
            generation = open_generation(connection, at, decision, self.run_id, lost)
            reach("start.after_generation")
            first = decision.reason == "first"
            restored = "fresh" if first else "savepoint" if decision.reason in _RESTORED else "new_generation"
            text = decision.text if first else f"generation {generation.number} opened: {decision.text}"
            at = InputPosition(generation, None)
            begun = Begun(generation, restored, generation.start, generation.open, text, most, read)
            return at, begun, BatchSize(most, most)
        assert at is not None, "only an existing position can continue"
        size = next_size(runs.sizes(connection, decision.resumes_at, self.attempt), most)
        text = decision.text
        if size.max_events < most:
            text += f"; larger batches have failed, so this run takes {size.max_events} events at once, and more after successes"
        unused = at.newest is None and at.generation.reason in _RESTORED
        restored = "savepoint" if unused else "position"
        begun = Begun(
            at.generation, restored, decision.resumes_at, decision.open, text, size.max_events, read
        )
        return at, begun, size


_RESTORED = ("savepoint", "skip", "fork")


def open_generation(
    connection: Connection,
    at: InputPosition | None,
    opening: Opening,
    run_id: UUID,
    lost: Collection[Delivered] = (),
) -> Generation:
    """Insert the generation; call in a transaction that holds the writer lock.

    `at`: the position that it continues. `lost`: delivered batches that the ledger does not have; no later start stops because of them.
    """
    generation = Generation(
        number=(at.generation.number if at else 0) + 1,
        start=opening.start,
        open=opening.open,
        lineage=opening.lineage,
        topics=opening.topics,
        reason=opening.reason,
        policy=opening.policy,
        revision=opening.revision,
        assembly=opening.assembly,
        explanation=opening.text,
        from_generation=at.generation.number if at else None,
        from_batch=at.batch_id if at else None,
        savepoint=opening.savepoint,
        cut=opening.cut,
    )
    generations.insert(connection, generation, run_id, [each.to_json() for each in lost])
    return generation


def read_input(settings: Settings, kafka: KafkaInput, topics: InputTopics) -> Input:
    """Ask Kafka for the bounds of the input. Raises UnavailableError."""
    earliest, latest = kafka.bounds(topics, "earliest"), kafka.bounds(topics, "latest")
    return Input(topics.ids, earliest, latest, stored_rules(settings))


def _outbox_uuid(connection: Connection) -> UUID:
    row = connection.execute(_LEDGER["outbox_uuid"]).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found
