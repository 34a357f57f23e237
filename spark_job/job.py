"""The job on one screen: own the outbox, decide where to resume, then read -> assemble and transform -> commit, batch after batch."""

import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog

from contract.output_topics import OutputTopics
from db.connection import Connection, connect
from db.migrate import require_current
from service.errors import OutboxError
from service.lifecycle import fault_points
from service.lifecycle.fault_points import reach
from service.lifecycle.shutdown import stop_on_handled_signals
from service.observability import tracing
from service.observability.logs import identify
from service.settings import Settings
from spark_job.assembly.code_fingerprint import task_code_fingerprint
from spark_job.assembly.schemas import check_registry
from spark_job.assembly.slices import TaskSettings
from spark_job.failures.explain import explain, explained, is_of_size
from spark_job.input.offsets import Offsets
from spark_job.input.topics import KafkaInput
from spark_job.ledger import ownership, requests, runs, savepoints
from spark_job.ledger.batch_size import BatchSize
from spark_job.ledger.owner_heartbeat import OwnerHeartbeat
from spark_job.ledger.requests import JobRequest, WithdrawnError
from spark_job.monitoring.health import JobHealth
from spark_job.outputs import transform
from spark_job.outputs.settings import OutputSchemaRules, TransformOf
from spark_job.recovery.findings import AcceptedRisks
from spark_job.recovery.start import RequestRefusedError, Start, Started
from spark_job.sink.backpressure import Backpressure
from spark_job.sink.commit import Sink
from spark_job.sink.computed_batch import ResultReader
from spark_job.spark.lazy_session import LazySession
from spark_job.status import endpoint
from spark_job.stream.batches import RunContext
from spark_job.stream.endings import Interruption
from spark_job.stream.query import QueryLoop
from spark_job.supervisor.attempts import AttemptPlan, Restarts
from spark_job.supervisor.standby import Standby

log = structlog.get_logger()

_PLACES_A_LINE = 4


def run(
    settings: Settings, accepted: AcceptedRisks, *, take_over: bool = False, standby: bool = False
) -> None:
    """Run until SIGTERM, SIGINT or `spark-job stop`, which stop between two batches.

    `standby`: wait while another run owns the outbox; if another run takes the outbox over from this one, wait again instead of ending.

    Raises OutboxError (with the exit code of its kind) when a person must decide or repair something. Nothing is lost then.
    """
    fingerprint = transform.fingerprint(transform.load(settings.transform.function))
    check_registry(settings.schema_registry.client())
    fault_points.arm(settings.testing.fault_file)
    plan = AttemptPlan(accepted=accepted, take_over=take_over)
    health = JobHealth(settings.metrics.hung_s)
    with ExitStack() as cleanup:
        cleanup.push(_log_end)  # the first, so that it is called last
        cleanup.enter_context(endpoint.served(settings, health))
        cleanup.enter_context(health.watched())
        stop = threading.Event()
        cleanup.enter_context(stop_on_handled_signals(stop))
        spark = LazySession(settings.job, settings.transform.function)
        cleanup.callback(spark.stop)
        restarts = Restarts(settings.restart, spark, stop, health, standby=standby)
        waiting = Standby(settings, spark, stop, health) if standby else None
        while not stop.is_set():
            try:
                if waiting is not None and not waiting.wait(plan.runs):
                    break
                following = attempt(settings, plan, spark, stop, fingerprint, health)
            except OutboxError as error:
                following = restarts.after(plan, error)
            if following is None:
                break
            plan = following
        health.stopping()


def attempt(
    settings: Settings,
    plan: AttemptPlan,
    spark: LazySession,
    stop: threading.Event,
    transform_fingerprint: str,
    health: JobHealth,
) -> AttemptPlan | None:
    """Make one run, from taking the outbox over to its end. Return the plan of the next attempt; None if the job ends.

    Raises OutboxError if the run fails; `plan` then holds what the next attempt still has to do or accept.
    """
    run_id = plan.run_id
    health.starting(plan.attempt)
    reach("start.begins")
    with ExitStack() as cleanup, explained():
        connection = cleanup.enter_context(connect(settings.postgres, "spark-job", autocommit=True))
        require_current(connection)
        spark.begin()  # while the outbox is taken over
        between = requests.pending(connection, *plan.former_runs)
        if between is not None and between.kind == "stop" and _stop_as_asked(connection, None, between):
            return None
        if plan.request is not None and requests.outcome(connection, plan.request.request_id) is not None:
            # The previous attempt fulfilled the request but failed before it saw its commit confirmed, or the command withdrew the request.
            plan.request = None
        kafka = KafkaInput(settings.kafka, settings.source.topics, settings.source.consumer_group)
        cleanup.callback(kafka.close)
        topics = kafka.describe()
        kafka.check_policies()
        start = Start(
            settings,
            run_id,
            plan.attempt,
            transform_fingerprint,
            plan.accepted,
            plan.take_over,
            plan.request,
            plan.former_runs,
        )
        try:
            started = start.run(connection, kafka, topics)
        except (RequestRefusedError, WithdrawnError) as error:
            assert plan.request is not None
            requests.refuse(connection, plan.request.request_id, str(error))
            log.warning("request_refused", kind=plan.request.kind, because=str(error))
            return replace(plan, request=None)
        plan.use()
        cleanup.push(partial(_end, settings, run_id, started.size))
        _report(started, run_id, plan.attempt)
        interruption = Interruption()
        # The heartbeat begins before Spark is ready: Spark may need longer than `owner_timeout_s`, and a standby takes over from an owner
        # that sent no heartbeat for that time.
        heartbeat = OwnerHeartbeat(
            settings.postgres,
            run_id,
            settings.job.heartbeat_s,
            on_fenced=interruption.fence,
            on_request=interruption.ask,
            health=health,
        )
        with heartbeat:
            run = RunContext(
                run_id,
                settings,
                spark.get(),
                spark.folder,
                topics,
                task_settings(settings, started.outbox_uuid, transform_fingerprint),
                ResultReader(started.position, lambda: kafka.describe_unchanged(topics)),
                Sink(
                    connection,
                    started.position,
                    run_id=run_id,
                    transform_fingerprint=transform_fingerprint,
                    max_row_bytes=settings.job.max_row_bytes,
                ),
                kafka,
                Backpressure(connection, run_id, settings.job, health),
                started.begun.resumes_at if plan.may_differ else Offsets(),
            )
            begun = started.begun
            loop = QueryLoop(run, begun.resumes_at, started.size, stop, interruption, health)
            health.running(_shown(started, run_id))
            reach("start.before_query")
            try:
                request = loop.run()
            finally:
                plan.ended(has_committed=health.has_committed)
        if request is None:
            return None
        log.info("request_accepted", kind=request.kind, arguments=request.arguments)
        if request.kind == "stop" and _stop_as_asked(connection, run_id, request):
            return None
        return replace(plan.following(), request=None if request.kind == "stop" else request)


def task_settings(settings: Settings, outbox_uuid: UUID, transform_fingerprint: str) -> TaskSettings:
    """Return what all tasks of a run receive."""
    fault_file = settings.testing.fault_file
    return TaskSettings(
        outbox_uuid=str(outbox_uuid),
        cache=settings.job.cache,
        transform=TransformOf(
            settings.transform.function,
            transform_fingerprint,
            settings.transform.on_error == "stop",
            settings.job.max_row_bytes,
            OutputTopics(settings.publisher.output_topics, settings.publisher.progress_topic),
        ),
        code=task_code_fingerprint(),
        kafka=settings.kafka.portable_client(),
        kafka_timeout_s=settings.kafka.request_timeout_s,
        registry=settings.schema_registry.client(),
        output_schemas=OutputSchemaRules(
            settings.schema_registry.auto_register, settings.schema_registry.subject_name_strategy
        ),
        fault_file=None if fault_file is None else str(fault_file),
    )


def _stop_as_asked(connection: Connection, run_id: UUID | None, request: JobRequest) -> bool:
    """Answer a stop request, and create the savepoint that it names, if any, in the same transaction. Call after the run's last commit.

    `run_id`: None between two attempts, when this process does not own the outbox. After an OutboxError, refuse the request and return
    False: the job continues.
    """
    name = request.arguments.get("savepoint")
    try:
        with connection.transaction():
            if run_id is None:
                ownership.lock(connection)
            else:
                ownership.lock_and_check(connection, run_id)
            place = f" at {savepoints.create(connection, name).place}" if name else ""
            text = f"stopped between two batches{f', savepoint {name!r}{place}' if name else ''}"
            requests.answer(connection, request.request_id, "done", text)
    except OutboxError as error:
        requests.refuse(connection, request.request_id, str(error))
        log.warning("request_refused", kind=request.kind, because=str(error))
        return False
    return True


def _end(
    settings: Settings,
    run_id: UUID,
    size: BatchSize,
    _kind: object,
    error: BaseException | None,
    _trace: object,
) -> None:
    """Exit callback: release the outbox and record why the run ended. `error`: what ended it, None after a normal end."""
    failed_at = size.failed_at if error is not None and is_of_size(explain(error)) else None
    ownership.release(settings.postgres, run_id, runs.because(error, failed_at))


def _log_end(_kind: object, error: BaseException | None, _trace: object) -> None:
    """Write the last line of the log. The command itself prints the whole error."""
    if error is None:
        log.info("job_stopped")
    else:
        log.error("job_stopped", failure=type(error).__name__)


def _shown(started: Started, run_id: UUID) -> dict[str, object]:
    """Return what `/readyz` and the metrics report about a start."""
    generation = started.position.generation
    return {
        "run": str(run_id),
        "restored": started.begun.restored,
        "generation": generation.number,
        "reason": generation.reason,
        "policy": generation.policy,
        "revision": generation.revision,
    }


def _report(started: Started, run_id: UUID, attempt: int) -> None:
    begun, generation = started.begun, started.position.generation
    names = started.topics.names | dict(generation.topics)
    tracing.about(started.outbox_uuid)
    # From here on, every log line of this process names the run and the generation.
    identify(run=str(run_id), generation=generation.number)
    log.info("job_started", revision=generation.revision, attempt=attempt, restored=begun.restored)
    log.info("job_resumes", explanation=begun.explanation)
    log.info(
        "job_rebuilds",
        open_sessions=sum(each.sessions for each in begun.open.values()),
        rebuild_offsets=begun.rebuild_offsets,
        reissued_offsets=begun.reissued_offsets,
    )
    places = sorted(
        (names.get(where.topic_id, where.topic_id), where.partition, offset)
        for where, offset in begun.resumes_at.items()
    )
    for first in range(0, len(places), _PLACES_A_LINE):
        some = places[first : first + _PLACES_A_LINE]
        log.info("job_resumes_at", at={f"{topic}/{partition}": offset for topic, partition, offset in some})
