"""The job on one screen: own the outbox, decide where to resume, then read -> assemble and transform -> commit, batch after batch."""

import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg.rows import TupleRow
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from db.connection import connect
from db.errors import FencedError
from db.migrate import require_current
from db.settings import Settings
from spark_job import ledger, packing, recovery, rows, transform, writer
from spark_job.assembly import assembly_settings, described, fingerprint
from spark_job.checkpoint import CheckpointDirectory
from spark_job.continuity import BatchRange
from spark_job.failures import explain
from spark_job.kafka_input import InputTopics, KafkaInput
from spark_job.ledger import Generation
from spark_job.recovery import Resumption
from spark_job.sink import Sink
from spark_job.source import read_events, starting_offsets
from spark_job.spark import start_session, stop_session
from spark_job.worker import BucketWorker

log = structlog.get_logger()

_POLL_S = 0.1


class StopRequestedError(Exception):
    """Ends the query between two batches: raised instead of beginning another one."""


@dataclass(frozen=True)
class Started:
    """What a start found and decided."""

    generation: Generation
    resumption: Resumption
    directory: CheckpointDirectory
    topics: InputTopics


def run(settings: Settings, *, take_over: bool = False) -> None:
    """Run until SIGTERM or SIGINT, which stop between two batches.

    Raises OutboxError (with the exit code of its kind) when something must be decided or mended; nothing is lost by that.
    """
    user_transform = transform.load(settings.transform.function)
    run_id = uuid4()
    with ExitStack() as cleanup:
        connection = cleanup.enter_context(connect(settings.postgres, "spark-job", autocommit=True))
        require_current(connection)
        kafka = KafkaInput(settings.kafka, settings.source.topics, settings.source.consumer_group)
        cleanup.callback(kafka.close)
        topics = kafka.describe()
        spark = start_session(settings.job)
        cleanup.callback(stop_session, spark)
        started = start(connection, settings, kafka, topics, spark, run_id, take_over=take_over)
        cleanup.callback(writer.release, connection, run_id)
        _report(started, run_id)
        sink = Sink(
            connection,
            run_id=run_id,
            generation=started.generation,
            transform_fingerprint=transform.fingerprint(user_transform),
            max_row_bytes=settings.job.max_row_bytes,
            batch_range=lambda batch: batch_range(started, batch),
            input_topics=lambda: kafka.describe_unchanged(topics),
        )
        loop = Loop(settings, spark, started, sink, kafka)
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
    with connection.transaction():
        writer.take_over(connection, run_id, settings.job, force=take_over)
        ledger.insert_first_lane_epoch(connection, settings.publisher.lanes)
        generation = ledger.newest_generation(connection)
        if generation is None:
            generation = _first_generation(settings, kafka, topics, assembly)
            ledger.insert_generation(connection, generation, run_id)
            directory = _directory(spark, settings, generation, topics)
            return Started(generation, Resumption("fresh", 0, generation.start), directory, topics)
        recovery.check_topics(generation, topics.ids)
        recovery.check_assembly(generation, assembly, fingerprint(assembly))
        directory = _directory(spark, settings, generation, topics)
        newest = ledger.newest_stream_batch(connection, generation.number)
        resumption = recovery.resume(
            generation, newest, directory.state(), directory.end_offsets, directory.uri
        )
        return Started(generation, resumption, directory, topics)


class Loop:
    """The streaming query and the ways in which it ends."""

    def __init__(
        self, settings: Settings, spark: SparkSession, started: Started, sink: Sink, kafka: KafkaInput
    ) -> None:
        self._settings, self._spark, self._started, self._sink, self._kafka = (
            settings,
            spark,
            started,
            sink,
            kafka,
        )
        self._stop = threading.Event()
        self._fenced = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Start the query and wait for its end. Raises OutboxError when it ended for another reason than `stop`."""
        query = self._start_query()
        try:
            self._wait(query)
            query.stop()
        except (StreamingQueryException, Py4JError, OSError) as error:
            # Stopping in mid-query is the way to stop between two batches; a signal to the whole process group ends the JVM as well.
            if not self._stop.is_set() or not isinstance(
                self._failure, StopRequestedError | Py4JError | OSError | None
            ):
                raise explain(self._failure or error) from error
        if self._fenced.is_set():
            raise FencedError(
                "another run has taken this outbox over. Nothing of this run is left to write; it stops."
            )

    def stop(self) -> None:
        """Stop before the next batch; may be called more than once, from a signal handler too."""
        self._stop.set()

    def fence(self) -> None:
        """Stop because another run owns the outbox."""
        self._fenced.set()
        self._stop.set()

    def _start_query(self) -> StreamingQuery:
        settings, job = self._settings, self._settings.job
        start_json = starting_offsets(
            self._started.generation.start, self._started.topics.ids, self._started.topics.partitions
        )
        events = read_events(
            self._spark,
            settings.kafka,
            settings.source,
            settings.session,
            start=start_json,
            max_events=job.max_events_per_batch,
            buckets=job.buckets,
            shuffle_partitions=job.shuffle_partitions,
        )
        worker = BucketWorker(
            assembly_settings(settings),
            settings.source.topics,
            settings.transform.function,
            settings.transform.on_error == "stop",
            job.max_row_bytes,
        )
        packed = events.mapInArrow(packing.pack, packing.DDL)
        assembled = packed.groupBy("bucket").applyInPandasWithState(
            worker, rows.DDL, rows.STATE_DDL, "append", "NoTimeout"
        )
        return (
            assembled.writeStream.foreachBatch(self._write)
            .option("checkpointLocation", self._started.directory.path)
            .trigger(processingTime=f"{job.trigger_ms} milliseconds")
            .start()
        )

    def _write(self, frame: DataFrame, spark_batch: int) -> None:
        """Spark's callback for one batch. A failure is kept, because Spark hands on only its text."""
        try:
            if self._stop.is_set():
                raise StopRequestedError
            self._sink.write(frame.toArrow(), spark_batch)
            self._kafka.show_progress(batch_range(self._started, spark_batch).end, self._started.topics)
        except BaseException as error:
            self._failure = error
            raise

    def _wait(self, query: StreamingQuery) -> None:
        while query.isActive and not self._stop.wait(_POLL_S):
            pass
        # Between two batches of a busy query there is no gap to stop in: the next callback ends it. An idle query has no next one.
        while query.isActive and query.status["isTriggerActive"]:
            time.sleep(_POLL_S)
        if not query.isActive:
            query.awaitTermination()  # raises what ended it


def batch_range(started: Started, spark_batch: int) -> BatchRange:
    """Return the range of a Spark batch: the offset log's end before it (or the generation's start) to its own."""
    generation, directory = started.generation, started.directory
    begin = generation.start if spark_batch == 0 else directory.end_offsets(spark_batch - 1)
    return BatchRange(begin, directory.end_offsets(spark_batch))


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
    """SIGTERM and SIGINT stop the loop; the handlers of before are put back."""

    def handle(number: int, _frame: FrameType | None) -> None:
        log.info("stop_requested", signal=signal.Signals(number).name)
        loop.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
