"""The streaming queries of a run: how each is started, and the one way in which it ends.

    Kafka source -> columns -> coalesce -> mapInArrow(assembly.task) -> toArrow -> the sink's transaction

No shuffle, no state, and a checkpoint that belongs to the query: a temporary directory, removed when the query ends. The ledger determines
where Spark begins. A run is one query, or several: Spark fixes the size of batches when a query starts, so each growth needs another query.

**States** (`endings.State`). The state only moves forward, and may skip states:

    RUNNING -> GROWING -> STOPPING -> FAILED

GROWING is set by the thread that computes; STOPPING by a signal (service/lifecycle/shutdown.py), a command's request or the loss of the
outbox; FAILED by the part that failed.

**Threads.** At most one batch is computed while at most one, the batch before it, is committed.

- *main* starts the query, watches the state, ends the query and judges the end. It owns the size of batches, and everything while no
  query runs.
- *Spark's stream thread* calls `_Callback` for each batch: computes it and hands the result over (`batches.py`). It owns
  `ResultReader.expected`: where the next batch begins.
- *commit* commits (`sink/commit_thread.py`). It owns `Sink.position` (the committed position), the sink's connection and
  `BatchSteps.largest`.
- *heartbeat* and *signals* set `Interruption` or `stop`, and do nothing else.

**The end.** In every state the main thread does these steps, in this order unless something failed:

1. The state leaves RUNNING. From here on no batch begins: if Spark's thread calls with another batch, the callback parks the thread.
2. Wait until the batch that is being computed has ended, and Spark's thread is parked or has nothing to do.
3. Wait for the last commit. A commit that backpressure holds back is dropped if the run ends.
4. Stop the query. The parked callback returns when Spark reports the query's end, so that no exception is needed to end it.
5. Read the state. GROWING: start the next query. Otherwise the run ends.

**Invariants.** The state is judged once, in step 5, when nothing is under way: a stop that comes in steps 1 to 4 of a growth finds the
last batch committed. A failure skips no step, but the wait for the commit then follows step 4 and is bounded, as is the wait for the batch
if calls to Spark fail: Spark or Postgres may not answer any more.
After a query's end, no object that Spark or py4j keeps refers to the run (`_Callback.close`), and nothing of the query itself is kept in
the JVM (`query_leftovers.py`).
"""

import contextlib
import threading
import time

import psycopg
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from service.errors import (
    DefectError,
    FencedError,
    JobFailedError,
    OutboxError,
    SmallestBatchError,
    UnavailableError,
)
from service.lifecycle.tracebacks import release_frames
from spark_job.failures.explain import SMALLER_MAY_PASS, explain
from spark_job.input.offsets import Offsets
from spark_job.input.source import offsets_json, offsets_of, read_records
from spark_job.ledger import ownership
from spark_job.ledger.batch_size import BatchSize
from spark_job.ledger.requests import JobRequest
from spark_job.monitoring import metrics
from spark_job.monitoring.health import JobHealth
from spark_job.sink.commit_thread import CommitThread
from spark_job.sink.computed_batch import BatchRange
from spark_job.spark.session import load_added_jars
from spark_job.stream.batches import BatchSteps, RunContext
from spark_job.stream.endings import FailedPart, Interruption, QueryEnding, State
from spark_job.stream.kafka_login import java_login
from spark_job.stream.pacing import Pacing
from spark_job.stream.query_leftovers import release_leftovers
from spark_job.stream.query_status import QueryStatus

log = structlog.get_logger()

_POLL_S = 0.1
_PARKED_POLL_S = 0.02
_BATCH_TIMEOUT_S = 60
_CANCEL_TIMEOUT_S = 10


class QueryLoop:
    """A run's queries: one, or several if batches grow back after a failure."""

    def __init__(
        self,
        run: RunContext,
        start: Offsets,
        size: BatchSize,
        stop: threading.Event,
        interruption: Interruption,
        health: JobHealth,
    ) -> None:
        """`start`: where Spark begins. `size`: of its batches. `stop`: set from outside, to stop before the next batch.

        `health` records the query's state.
        """
        self._run = run
        self._size = size
        self._stop = stop
        self._interruption = interruption
        self._health = health
        self._commits = CommitThread()
        self._batches = BatchSteps(run, start, self._commits, health)

    def run(self) -> JobRequest | None:
        """Run until the run ends; return the request that ended it, or None if `stop` did.

        Raises OutboxError if it ended for another reason.
        """
        with contextlib.closing(self._commits):
            while True:
                self._batches.begin_query(self._size.successes_to_grow)
                ending = self._run_query()
                self._size.committed(self._batches.largest)
                if ending.state is not State.GROWING:
                    break
                self._size.grow()
                log.info("batches_grow", max_events=self._size.max_events)
        self._judge(ending.failure)
        return self._interruption.request

    def _run_query(self) -> QueryEnding:
        """Run one query to its end."""
        ending = QueryEnding(self._stop, self._interruption)
        callback = _Callback(
            self._batches, ending, Pacing(self._run.settings.job.period_ms, self._size.max_events)
        )
        with self._run.folder.checkpoint() as checkpoint, contextlib.closing(callback):
            query = self._start(callback, checkpoint)
            callback.started(query)
            try:
                self._watch(query, ending)
                self._drain(query, ending)
            except (StreamingQueryException, Py4JError, OSError) as error:
                ending.fail(FailedPart.SPARK, error)
            finally:
                self._end(query, ending)
        release_leftovers(self._run.spark)
        return ending

    def _start(self, callback: "_Callback", checkpoint: str) -> StreamingQuery:
        run, job = self._run, self._run.settings.job
        load_added_jars(run.spark)
        ids = run.topics.ids
        records = read_records(
            run.spark,
            run.settings.kafka,
            list(ids),
            self._batches.columns,
            start=offsets_json(self._batches.read_to, ids),
            max_events=self._size.max_events,
            login=java_login(run.spark, run.settings.kafka),
        )
        writer = records.writeStream.foreachBatch(callback).option("checkpointLocation", checkpoint)
        if job.async_progress:
            # Recovery reads no plan or commit file of Spark's checkpoint, so Spark writes them only once an hour, beside the batches.
            writer = (
                writer.option("asyncProgressTrackingEnabled", "true")
                .option("asyncProgressTrackingCheckpointIntervalMs", "3600000")
                .option("_asyncProgressTrackingOverrideSinkSupportCheck", "true")
            )
        return writer.start()

    def _watch(self, query: StreamingQuery, ending: QueryEnding) -> None:
        """Return when the state has left RUNNING, or Spark has ended the query."""
        status = QueryStatus(query, self._health, self._batches.before)
        while ending.state is State.RUNNING and query.isActive:
            status.poll()
            self._stop.wait(_POLL_S)

    def _drain(self, query: StreamingQuery, ending: QueryEnding) -> None:
        """Return when no batch is computed or committed any more. After a failure, `_end` waits for the commit, for a bounded time."""
        if ending.ends_run:
            self._health.query_ending()
        while query.isActive and not ending.parked.is_set() and query.status["isTriggerActive"]:
            self._health.query_polled()
            time.sleep(_POLL_S)
        while True:
            if not query.isActive and ending.failure is None:
                query.awaitTermination()  # raises what ended it
                if not ending.ends_run:
                    ending.fail(FailedPart.SPARK, JobFailedError("Spark ended the query by itself"))
            if ending.state is State.FAILED or self._commits.settle(_POLL_S):
                return
            self._health.query_polled()

    def _end(self, query: StreamingQuery, ending: QueryEnding) -> None:
        """Stop the query and wait for the callback and the commit: nothing may be writing when the process cleans up."""
        if ending.ends_run:
            self._health.query_ending()
        # The JVM may be gone, or slow to stop; only the callback's end matters.
        with contextlib.suppress(Py4JError, OSError):
            query.stop()
        has_computed = ending.computing.acquire(timeout=_BATCH_TIMEOUT_S)
        if has_computed:
            ending.computing.release()
        has_settled = self._commits.settle(_BATCH_TIMEOUT_S)
        if has_computed and has_settled:
            return
        log.error("batch_still_running", waited_s=_BATCH_TIMEOUT_S)
        if not has_settled:
            # No thread can use or close the connection while a statement runs on it.
            self._run.sink.cancel()
            self._commits.settle(_CANCEL_TIMEOUT_S)
            gave_up = UnavailableError(
                "Postgres did not end the commit of the last batch; the next start checks whether the batch is in the outbox"
            )
            ending.fail(FailedPart.COMMIT, gave_up)

    def _judge(self, failure: BaseException | None) -> None:
        """Raise the error that ended the run; return if `stop` or a request ended it. `failure`: what failed, if anything did."""
        # A takeover ends this run's connection, so the first sign of a takeover may be a lost connection.
        if self._interruption.is_fenced or isinstance(failure, psycopg.Error | UnavailableError):
            lost = ownership.ask_disowned(self._run.settings.postgres, self._run.run_id)
            if isinstance(lost, FencedError):
                metrics.fenced()
            if lost is not None:
                raise lost
            if failure is None:
                raise UnavailableError(
                    "for a moment Postgres reported another run as the owner of the outbox; the next attempt checks again"
                )
        if failure is None:
            return
        # A signal to the whole process group also ends the JVM. Then only calls to Spark fail, and the stop is a clean one.
        if self._stop.is_set() and isinstance(failure, Py4JError | OSError):
            log.warning("spark_gone_while_stopping", error=type(failure).__name__)
            return
        error = self._explained(failure)
        if isinstance(error, FencedError):
            metrics.fenced()
        raise error from failure

    def _explained(self, failure: BaseException) -> OutboxError:
        error = explain(failure)
        if isinstance(error, DefectError) and not isinstance(failure, PySparkException | Py4JError):
            log.error("job_defect", exc_info=failure)  # spark.log has the text of errors that Spark reports
        if isinstance(error, SMALLER_MAY_PASS) and self._size.max_events == 1:
            return SmallestBatchError(f"a batch of a single event fails, too. {error}")
        return error


class _Callback:
    """The function that Spark calls for each batch. The JVM keeps this object until its garbage collector runs, so `close` empties it."""

    def __init__(self, batches: BatchSteps, ending: QueryEnding, pacing: Pacing) -> None:
        self._parts: tuple[BatchSteps, QueryEnding] | None = (batches, ending)
        self._pacing = pacing
        self._query: StreamingQuery | None = None
        self._is_started = threading.Event()
        self._raised: BaseException | None = None

    def started(self, query: StreamingQuery) -> None:
        """Note that the query has started: Spark may call before the start has returned, so batches wait for this call."""
        self._query = query
        self._is_started.set()

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        """Compute a batch; if the query is to end, wait for its end instead. Keep a failure, because Spark passes on only its text."""
        self._is_started.wait()
        if self._parts is None or self._query is None:
            return
        (batches, ending), query = self._parts, self._query
        with ending.computing:
            is_wanted = ending.state is State.RUNNING
            if is_wanted:
                self._pacing.begin()
                try:
                    events = batches.compute(frame, _range(query, batches), spark_batch, ending)
                except BaseException as error:
                    self._raised = error
                    ending.fail(FailedPart.BATCH, error)
                    raise
        if is_wanted:
            self._pacing.pause(events, lambda: ending.state is not State.RUNNING)
            return
        ending.parked.set()
        with contextlib.suppress(Py4JError, OSError):
            while query.isActive:
                time.sleep(_PARKED_POLL_S)

    def close(self) -> None:
        """Drop the references to the run, also those in the traceback of the exception that was raised: pyspark keeps that exception."""
        self._parts = self._query = None
        self._is_started.set()
        if self._raised is not None:
            release_frames(self._raised)


def _range(query: StreamingQuery, batches: BatchSteps) -> BatchRange:
    """Return the input that Spark is about to read for the batch; Spark does not pass it to the callback."""
    execution, ids = query._jsq.streamingQuery(), batches.run.topics.ids
    start, end = (
        [offsets_of(progress.values().head().json(), ids)] if progress.nonEmpty() else []
        for progress in (execution.getStartOffsetsOfLatestBatch(), execution.availableOffsets())
    )
    # For the first batch of a query, Spark names no start: the batch begins where the query does.
    return BatchRange(*(start or [batches.read_to]), *end)
