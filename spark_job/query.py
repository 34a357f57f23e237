"""The streaming query: what Spark runs, what each batch does, and the ways in which it ends."""

import contextlib
import threading
import time
from uuid import UUID

import psycopg
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from db import fault_points
from db.errors import FencedError, UnavailableError
from db.fault_points import reach
from db.settings import Settings
from spark_job import metrics, packing, rows, writer
from spark_job.assembly import assembly_settings
from spark_job.backlog import Brake
from spark_job.condition import Condition
from spark_job.continuity import BatchRange
from spark_job.failures import explain
from spark_job.kafka_input import KafkaInput
from spark_job.query_watch import QueryWatch
from spark_job.requests import Request
from spark_job.sink import Sink
from spark_job.source import read_events, starting_offsets
from spark_job.start import Started
from spark_job.worker import BucketWorker

log = structlog.get_logger()

_POLL_S = 0.1
_CALLBACK_TIMEOUT_S = 60


class StopRequestedError(Exception):
    """Ends the query between two batches: raised instead of beginning another one."""


class Loop:
    """The streaming query and the ways in which it ends."""

    def __init__(
        self,
        settings: Settings,
        run_id: UUID,
        spark: SparkSession,
        started: Started,
        sink: Sink,
        kafka: KafkaInput,
        brake: Brake,
        stop: threading.Event,
        condition: Condition,
    ) -> None:
        """`stop`: set from outside, by a signal, to stop before the next batch. `condition` is told how the query is."""
        self._settings, self._run_id, self._spark = settings, run_id, spark
        self._started, self._sink, self._kafka, self._brake = started, sink, kafka, brake
        self._stop = stop
        self._condition = condition
        self._leave = threading.Event()  # this run ends, the process need not
        self._fenced = False
        self._request: Request | None = None
        self._failure: BaseException | None = None
        self._writing = threading.Lock()
        self._awaiting_commit: int | None = None  # written, not yet in the checkpoint

    def run(self) -> Request | None:
        """Start the query and wait for its end; return the request that ended it, None where `stop` did.

        Raises OutboxError when it ended for another reason.
        """
        query = self._start_query()
        ended: BaseException | None = None
        try:
            self._wait(query)
        except (StreamingQueryException, Py4JError, OSError) as error:
            ended = error
        finally:
            self._end(query)
        failure = self._failure or ended
        if self._fenced or self._lost_ownership(failure):
            metrics.fenced()
            raise FencedError(
                f"another run has taken this outbox over from {self._run_id}. Nothing of this one is left to write; it stops."
            )
        if failure is None and not self._is_ending:
            raise explain(RuntimeError("Spark ended the query by itself"))
        if failure is not None and not isinstance(failure, StopRequestedError):
            # A signal to the whole process group ends the JVM, too: then all that fails is Spark.
            if not self._stop.is_set() or not isinstance(failure, Py4JError | OSError):
                raise explain(failure) from ended
            log.warning("spark_gone_while_stopping", error=type(failure).__name__)
        return self._request

    def fence(self) -> None:
        """Stop because another run owns the outbox."""
        self._fenced = True
        self._leave.set()

    def ask(self, request: Request) -> None:
        """Stop before the next batch, so that what a command asks can be done."""
        self._request = request
        self._leave.set()

    @property
    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._leave.is_set()

    def _start_query(self) -> StreamingQuery:
        settings, job, generation = self._settings, self._settings.job, self._started.generation
        # Spark keeps as many pieces of state as the query's first start had shuffle partitions: the generation's, not the settings'.
        self._spark.conf.set("spark.sql.shuffle.partitions", str(generation.shuffle_partitions))
        start_json = starting_offsets(
            generation.start, self._started.topics.ids, self._started.topics.partitions
        )
        events = read_events(
            self._spark,
            settings.kafka,
            settings.source,
            settings.session,
            start=start_json,
            max_events=job.max_events_per_batch,
            buckets=generation.buckets,
            shuffle_partitions=generation.shuffle_partitions,
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
        with self._writing:
            try:
                self._brake.wait(lambda: self._is_ending)
                if self._is_ending:
                    raise StopRequestedError
                reach("query.before_action")
                planned = batch_range(self._started, spark_batch)
                began = time.perf_counter()
                table = frame.toArrow()
                action_s = time.perf_counter() - began
                reach("query.after_action")
                if self._sink.write(table, spark_batch, planned) is not None:
                    metrics.action(action_s)
                self._kafka.show_progress(planned.end, self._started.topics)
                self._awaiting_commit = spark_batch
                self._condition.batch_committed(spark_batch)
                reach("query.before_return")
            except BaseException as error:
                self._failure = error
                raise

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query and wait for the callback: nothing may be writing when the process cleans up."""
        self._condition.query_ending()
        with contextlib.suppress(
            Py4JError, OSError
        ):  # the JVM may be gone, or slow to stop; the callback counts
            query.stop()
        if not self._writing.acquire(timeout=_CALLBACK_TIMEOUT_S):
            log.error(
                "batch_still_running", waited_s=_CALLBACK_TIMEOUT_S
            )  # its commit will fail: the connection is closed next

    def _lost_ownership(self, failure: BaseException | None) -> bool:
        """A takeover ends this run's connection, so that the first sign of it may be a lost connection."""
        return isinstance(failure, psycopg.Error | UnavailableError) and writer.was_taken_over(
            self._settings.postgres, self._run_id
        )

    def _wait(self, query: StreamingQuery) -> None:
        watch = QueryWatch(query, self._condition)
        while query.isActive and not self._is_ending:
            watch.look()
            self._stop.wait(_POLL_S)
            if fault_points.is_armed():
                self._reach_after_commit()
        # Between two batches of a busy query there is no gap to stop in: the next callback ends it. An idle query has no next one.
        while query.isActive and query.status["isTriggerActive"]:
            self._condition.asked_spark()
            time.sleep(_POLL_S)
        if not query.isActive:
            query.awaitTermination()  # raises what ended it

    def _reach_after_commit(self) -> None:
        """A point that no callback passes: Spark's own commit of a batch is in the checkpoint."""
        written = self._awaiting_commit
        committed = self._started.directory.state().committed
        if written is not None and committed is not None and committed >= written:
            self._awaiting_commit = None
            reach("query.after_spark_commit")


def batch_range(started: Started, spark_batch: int) -> BatchRange:
    """Return the range of a Spark batch: the offset log's end before it (or the generation's start) to its own."""
    generation, directory = started.generation, started.directory
    begin = generation.start if spark_batch == 0 else directory.end_offsets(spark_batch - 1)
    return BatchRange(begin, directory.end_offsets(spark_batch))
