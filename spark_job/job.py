"""The job on one screen: own the outbox, decide where to resume, then read -> assemble and transform -> commit, batch after batch."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg.rows import TupleRow
from pyspark.sql import SparkSession

from db.connection import connect
from db.migrate import require_current
from db.settings import Settings
from spark_job import ledger, recovery, transform, writer
from spark_job.assembly import described, fingerprint
from spark_job.checkpoint import CheckpointDirectory
from spark_job.failures import explained
from spark_job.kafka_input import InputTopics, KafkaInput
from spark_job.ledger import Generation
from spark_job.query import Loop, Started
from spark_job.recovery import Resumption
from spark_job.sink import Sink
from spark_job.spark import start_session, stop_session

log = structlog.get_logger()


def run(settings: Settings, *, take_over: bool = False) -> None:
    """Run until SIGTERM or SIGINT, which stop between two batches.

    Raises OutboxError (with the exit code of its kind) when something must be decided or mended; nothing is lost by that.
    """
    transform_fingerprint = transform.fingerprint(transform.load(settings.transform.function))
    run_id = uuid4()
    with ExitStack() as cleanup, explained():
        connection = cleanup.enter_context(connect(settings.postgres, "spark-job", autocommit=True))
        require_current(connection)
        kafka = KafkaInput(settings.kafka, settings.source.topics, settings.source.consumer_group)
        cleanup.callback(kafka.close)
        topics = kafka.describe()
        spark = start_session(settings.job)
        cleanup.callback(stop_session, spark)
        started = start(connection, settings, kafka, topics, spark, run_id, take_over=take_over)
        cleanup.callback(writer.release, settings.postgres, run_id)
        _report(started, run_id)
        sink = Sink(
            connection,
            run_id=run_id,
            generation=started.generation,
            transform_fingerprint=transform_fingerprint,
            max_row_bytes=settings.job.max_row_bytes,
            input_topics=lambda: kafka.describe_unchanged(topics),
        )
        loop = Loop(settings, run_id, spark, started, sink, kafka)
        cleanup.enter_context(_signals(loop))
        cleanup.enter_context(
            writer.Heartbeat(settings.postgres, run_id, settings.job.heartbeat_s, on_fenced=loop.fence)
        )
        loop.run()


def start(
    connection: psycopg.Connection[TupleRow],
    settings: Settings,
    kafka: KafkaInput,
    topics: InputTopics,
    spark: SparkSession,
    run_id: UUID,
    *,
    take_over: bool,
) -> Started:
    """Own the outbox, find or open the generation and decide where it resumes: one transaction under the writer lock (design §3.4)."""
    assembly = described(settings)
    # A living owner must not be ended by a start that is then refused: what cannot change meanwhile is checked before.
    _fitting(connection, settings, topics, spark, assembly)
    with connection.transaction():
        writer.take_over(connection, run_id, settings.job, force=take_over)
        ledger.insert_first_lane_epoch(connection, settings.publisher.lanes)
        found = _fitting(connection, settings, topics, spark, assembly)
        if found is None:
            generation = _first_generation(settings, kafka, topics, assembly)
            ledger.insert_generation(connection, generation, run_id)
            directory = _directory(spark, settings, generation, topics)
            return Started(generation, Resumption("fresh", 0, generation.start), directory, topics)
        generation, directory = found
        newest = ledger.newest_stream_batch(connection, generation.number)
        resumption = recovery.resume(
            generation, newest, directory.state(), directory.end_offsets, directory.uri
        )
        return Started(generation, resumption, directory, topics)


def _fitting(
    connection: psycopg.Connection[TupleRow],
    settings: Settings,
    topics: InputTopics,
    spark: SparkSession,
    assembly: dict[str, Any],
) -> tuple[Generation, CheckpointDirectory] | None:
    """The newest generation and its directory, None in an empty outbox.

    Raises ContinuityError where settings, topics or folder do not fit.
    """
    generation = ledger.newest_generation(connection)
    if generation is None:
        return None
    recovery.check_topics(generation, topics.ids)
    recovery.check_assembly(generation, assembly, fingerprint(assembly))
    directory = _directory(spark, settings, generation, topics)
    newest = ledger.newest_stream_batch(connection, generation.number)
    recovery.check_present(generation, newest, directory.state(), directory.uri)
    return generation, directory


def _first_generation(
    settings: Settings, kafka: KafkaInput, topics: InputTopics, assembly: dict[str, Any]
) -> Generation:
    start_offsets = kafka.bounds(topics, settings.source.starting_offsets)
    return Generation(
        number=1,
        directory_token=secrets.token_hex(4),
        start=start_offsets,
        high_water=start_offsets,
        topics=topics.names,
        reason="first",
        policy="skip",
        revision=0,
        assembly=assembly,
        assembly_fingerprint=fingerprint(assembly),
    )


def _directory(
    spark: SparkSession, settings: Settings, generation: Generation, topics: InputTopics
) -> CheckpointDirectory:
    path = f"{settings.job.checkpoint.rstrip('/')}/{generation.directory}"
    return CheckpointDirectory(spark, path, topics.ids)


def _report(started: Started, run_id: UUID) -> None:
    names = started.topics.names
    log.info(
        "job_started",
        run=str(run_id),
        generation=started.generation.number,
        restored=started.resumption.text(),
        checkpoint=started.directory.uri,
        resumes_at={
            f"{names[w.topic_id]}/{w.partition}": o for w, o in started.resumption.resumes_at.items()
        },
    )


@contextmanager
def _signals(loop: Loop) -> Iterator[None]:
    """SIGTERM and SIGINT stop the loop, a second one the process; the handlers of before are put back."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if loop.is_stopping:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        loop.stop()  # first: writing the log may fail
        log.info("stop_requested", signal=signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
