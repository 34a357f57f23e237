"""The streaming query: what Spark runs, what each batch does, and the ways in which it ends.

Kafka source -> columns -> coalesce -> mapInArrow(assembly.task) -> toArrow -> the sink's transaction, which runs beside the next batch. No
shuffle, no state, and a checkpoint that belongs to the run: a temporary directory, thrown away. Spark is told where to begin by the ledger.
"""

import contextlib
import threading
import time
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import psycopg
import structlog
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from service.errors import FencedError, OutboxError, UnavailableError
from service.fault_points import reach
from service.settings import Settings
from spark_job.assembly import rows
from spark_job.assembly.slices import TaskSettings
from spark_job.assembly.task import AssemblyTask
from spark_job.input import unreadable
from spark_job.input.offsets import Offsets
from spark_job.input.reading import NoAnswerError, RecordsGoneError
from spark_job.input.source import offsets_json, offsets_of, read_records
from spark_job.input.topics import InputTopics, KafkaInput
from spark_job.monitoring import metrics
from spark_job.monitoring.condition import Condition
from spark_job.recovery import ownership
from spark_job.recovery.positions.judges import assembly_of
from spark_job.recovery.positions.slices import slices_of
from spark_job.recovery.requests import JobRequest
from spark_job.sink.backpressure import Backpressure
from spark_job.sink.commit import BatchRange, ComputedBatch, Sink
from spark_job.sink.commit_thread import CommitThread
from spark_job.spark import parallelism
from spark_job.spark.batch_options import BatchOptions
from spark_job.spark.endings import (
    MEANT,
    DroppedError,
    Interruption,
    LargerBatchesError,
    StopRequestedError,
    first_failure,
)
from spark_job.spark.failures import SMALLER_MAY_PASS, InputTimestampError, SmallestBatchError, explain
from spark_job.spark.query_watch import QueryWatch
from spark_job.spark.session import load_added_jars
from spark_job.spark.task_options import without_secrets
from spark_job.spark.work_folder import WorkFolder

log = structlog.get_logger()

_POLL_S = 0.1
_CALLBACK_TIMEOUT_S = 60
_CANCEL_TIMEOUT_S = 10
# Batches of a reduced size that must go through before it grows.
_SUCCESSES_TO_GROW = 4
_GROWTH = 4


@dataclass(frozen=True)
class RunContext:
    """What a run's queries work with."""

    run_id: UUID
    settings: Settings
    spark: SparkSession
    folder: WorkFolder
    topics: InputTopics
    task: TaskSettings
    sink: Sink
    kafka: KafkaInput
    backpressure: Backpressure
    accept_differing_at: Offsets
    """Where open sessions that are found again need not be what was open: at the run's start, with `--accept-data-loss`."""


class QueryLoop:
    """A run's queries: one, or several where batches grow back after a failure."""

    def __init__(
        self,
        run: RunContext,
        start: Offsets,
        max_events: int,
        stop: threading.Event,
        interruption: Interruption,
        condition: Condition,
    ) -> None:
        """`start`: where Spark begins. `stop`: set from outside, to stop before the next batch. `condition` is told how the query is."""
        self._run = run
        self._read_to = start
        self._max_events = max_events
        self._stop = stop
        self._condition = condition
        self._interruption = interruption
        self._failure: BaseException | None = None
        self._computing = threading.Lock()
        self._commits = CommitThread()
        self._query_over = threading.Event()
        self._query: StreamingQuery | None = None
        self._started = threading.Event()
        self._batches = 0
        """Of this run's earlier queries: Spark counts each query's from 0."""
        self._next_batch = 0
        self._planned: BatchRange | None = None
        self._successes = 0
        self._chosen = dict(run.spark.sparkContext.getConf().getAll())
        self._threads = run.spark.sparkContext.defaultParallelism
        self._cores = int(self._chosen.get(parallelism.CORES_OPTION, self._threads))
        self._options = BatchOptions(self._chosen)
        self._mean_event_bytes: float | None = None

    def run(self) -> JobRequest | None:
        """Run until the end; return the request that ended it, None where `stop` did.

        Raises OutboxError when it ended for another reason.
        """
        with contextlib.closing(self._commits):
            while True:
                self._failure = None
                with self._run.folder.checkpoint() as checkpoint:
                    ended = self._run_query(checkpoint)
                failure = first_failure(self._commits.failure, self._failure, ended)
                if not isinstance(failure, LargerBatchesError) or self._is_ending:
                    self._judge(failure, ended)
                    return self._interruption.request
                self._max_events = min(
                    self._max_events * _GROWTH, self._run.settings.job.max_events_per_batch
                )
                log.info("batches_grow", max_events=self._max_events)

    @property
    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._interruption.is_due

    def _run_query(self, checkpoint: str) -> BaseException | None:
        """Run one query to its end; return what Spark says ended it."""
        self._batches, self._successes = self._next_batch, 0
        self._options = BatchOptions(self._chosen)
        self._started.clear()
        self._query_over.clear()
        query = self._query = self._start(checkpoint)
        self._started.set()
        try:
            self._wait(query)
        except (StreamingQueryException, Py4JError, OSError) as error:
            return error
        finally:
            self._end(query)
        return None

    def _start(self, checkpoint: str) -> StreamingQuery:
        run, job = self._run, self._run.settings.job
        load_added_jars(run.spark)
        ids = run.topics.ids
        columns = assembly_of(run.sink.position.generation.assembly).columns
        if run.settings.tracing.propagate:
            columns = columns.with_trace_context()
        records = read_records(
            run.spark,
            run.settings.kafka,
            list(ids),
            columns,
            start=offsets_json(self._read_to, ids),
            max_events=self._max_events,
        )
        writer = records.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", checkpoint)
        if job.async_progress:
            # Recovery needs none of Spark's own plan and commit files: they are written once an hour, beside the batches.
            writer = (
                writer.option("asyncProgressTrackingEnabled", "true")
                .option("asyncProgressTrackingCheckpointIntervalMs", "3600000")
                .option("_asyncProgressTrackingOverrideSinkSupportCheck", "true")
            )
        return writer.trigger(processingTime=f"{job.trigger_ms} milliseconds").start()

    def _on_batch(self, frame: DataFrame, spark_batch: int) -> None:
        """Spark's callback for one batch. A failure is kept, because Spark hands on only its text."""
        with self._computing:
            try:
                if self._is_ending or self._commits.failure is not None:
                    raise StopRequestedError
                self._compute(frame, spark_batch)
            except BaseException as error:
                self._failure = error
                raise

    def _compute(self, frame: DataFrame, spark_batch: int) -> None:
        """Run the batch's one Spark action, and hand its result over to be committed while Spark plans and computes the next batch.

        That one's tasks are told what is open by this one's result: should the commit fail, the run ends, and the next start reads what is
        in the ledger.
        """
        run, number = self._run, self._batches + spark_batch
        reach("query.before_action")
        planned = self._planned = self._range()
        began = time.perf_counter()
        at = run.sink.expected
        slices = slices_of(
            at, planned.start, planned.end, run.topics, run.accept_differing_at, run.sink.position
        )
        sizes = [each.end - each.start for each in slices.values() if each.end > each.start]
        self._options.suit(frame, sum(sizes), len(sizes), self._mean_event_bytes)
        tasks = run.settings.job.tasks or parallelism.tasks(sum(sizes), self._cores, self._threads)
        task = without_secrets(AssemblyTask(run.task, slices), frame.sparkSession.sparkContext)
        table = frame.coalesce(tasks).mapInArrow(task, rows.DDL).toArrow()
        action_s = time.perf_counter() - began
        reach("query.after_action")
        computed = run.sink.read(table, planned)
        del table  # the hand-over may wait for long
        if computed is not None:
            self._mean_event_bytes = computed.result.mean_event_bytes
        self._commits.hand_over(partial(self._commit, computed, planned, number, action_s))
        self._condition.batch_computed(number)
        self._read_to, self._next_batch = Offsets({**self._read_to, **planned.end}), number + 1
        self._successes += 1
        if self._successes >= _SUCCESSES_TO_GROW and self._max_events < run.settings.job.max_events_per_batch:
            raise LargerBatchesError

    def _commit(
        self, computed: ComputedBatch | None, planned: BatchRange, number: int, action_s: float
    ) -> None:
        """Commit one batch, in the thread of `CommitThread`. `computed`: None where there is nothing to store."""
        run = self._run
        if computed is not None:
            if not run.backpressure.wait(lambda: self._is_ending or self._query_over.is_set()):
                raise StopRequestedError if self._is_ending else DroppedError
            run.sink.commit(computed, number)
            metrics.action(action_s)
        run.kafka.show_progress(planned.end, run.topics)
        self._condition.batch_committed(number)
        reach("query.after_batch")

    def _range(self) -> BatchRange:
        """The batch's input, by what Spark is about to read. It does not hand that to the callback."""
        self._started.wait()
        assert self._query is not None
        execution = self._query._jsq.streamingQuery()
        ids = self._run.topics.ids
        start, end = (
            [offsets_of(progress.values().head().json(), ids)] if progress.nonEmpty() else []
            for progress in (execution.getStartOffsetsOfLatestBatch(), execution.availableOffsets())
        )
        # The first batch of a query has no start of its own: it begins where the query was told to.
        return BatchRange(*(start or [self._read_to]), *end)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query and wait for the callback and the commit: nothing may be writing when the process cleans up."""
        if isinstance(self._failure, LargerBatchesError) and not self._is_ending:
            return  # it has ended; the next query's first batch waits for this one's last commit
        self._condition.query_ending()
        self._query_over.set()
        # The JVM may be gone, or slow to stop; the callback counts.
        with contextlib.suppress(Py4JError, OSError):
            query.stop()
        callback_ended = self._computing.acquire(timeout=_CALLBACK_TIMEOUT_S)
        if callback_ended:
            self._computing.release()
        has_settled = self._commits.settle(_CALLBACK_TIMEOUT_S)
        if callback_ended and has_settled:
            return
        log.error("batch_still_running", waited_s=_CALLBACK_TIMEOUT_S)
        if not has_settled:
            # Nobody can use the connection, or close it, while a statement runs on it.
            self._run.sink.cancel()
            self._commits.settle(_CANCEL_TIMEOUT_S)
            self._failure = UnavailableError(
                "Postgres did not end the commit of the last batch; the next start finds out whether the batch is there"
            )

    def _judge(self, failure: BaseException | None, ended: BaseException | None) -> None:
        """Raise what ended the query, unless that was meant."""
        # A takeover ends this run's connection, so that the first sign of it may be a lost connection.
        if self._interruption.is_fenced or isinstance(failure, psycopg.Error | UnavailableError):
            lost = ownership.ask_disowned(self._run.settings.postgres, self._run.run_id)
            if isinstance(lost, FencedError):
                metrics.fenced()
            if lost is not None:
                raise lost
            if failure is None:
                raise UnavailableError(
                    "the outbox was another run's for a moment, by what Postgres said; the next attempt checks again"
                )
        if failure is None and not self._is_ending:
            raise explain(RuntimeError("Spark ended the query by itself"))
        if failure is None or isinstance(failure, MEANT):
            return
        # A signal to the whole process group ends the JVM, too: then all that fails is Spark.
        if not self._stop.is_set() or not isinstance(failure, Py4JError | OSError):
            error = self._explained(failure)
            if isinstance(error, FencedError):
                metrics.fenced()
            raise error from ended
        log.warning("spark_gone_while_stopping", error=type(failure).__name__)

    def _explained(self, failure: BaseException) -> OutboxError:
        error = explain(failure)
        if isinstance(error, SMALLER_MAY_PASS) and self._max_events == 1:
            return SmallestBatchError(f"not even one event at a time gets through. {error}")
        if isinstance(error, InputTimestampError) and self._planned is not None:
            with contextlib.suppress(KafkaException, RecordsGoneError, NoAnswerError):
                kafka, names = self._run.settings.kafka, self._run.topics.names
                named = unreadable.find(kafka, self._planned.start, self._planned.end, names)
                return InputTimestampError(named or str(error))
        return error

    def _wait(self, query: StreamingQuery) -> None:
        watch = QueryWatch(query, self._condition, self._batches)
        while query.isActive and not self._is_ending and self._commits.failure is None:
            watch.look()
            self._stop.wait(_POLL_S)
        if not isinstance(self._failure, LargerBatchesError):
            self._condition.query_ending()
        # Between two batches of a busy query there is no gap to stop in: the next callback ends it. An idle query has no next one.
        while query.isActive and query.status["isTriggerActive"]:
            self._condition.asked_spark()
            time.sleep(_POLL_S)
        # A stop comes after the last commit, as long as that takes.
        while self._is_ending and not self._commits.settle(_POLL_S):
            self._condition.asked_spark()
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
