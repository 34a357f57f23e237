"""The steps of each batch of a run: one Spark action, then a commit beside the next batch's action.

While a query runs, Spark's stream thread, which calls `compute`, owns all attributes here but `largest`. The commit runs in the thread of
`CommitThread`, which then owns `largest`, the sink and its connection. Between two queries the main thread owns all of them. The stream
thread passes a `ComputedBatch` to the commit thread, and neither changes it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from service.lifecycle.fault_points import reach
from service.settings import Settings
from spark_job.assembly.slices import TaskSettings
from spark_job.assembly.task import AssemblyTask
from spark_job.input.offsets import Offsets
from spark_job.input.topics import InputTopics, KafkaInput
from spark_job.ledger.assembly_rules import applied_rules
from spark_job.ledger.slice_building import slices_of
from spark_job.monitoring import metrics
from spark_job.monitoring.health import JobHealth
from spark_job.sink.backpressure import Backpressure
from spark_job.sink.commit import Sink
from spark_job.sink.commit_thread import CommitThread
from spark_job.sink.computed_batch import BatchRange, ComputedBatch, ResultReader
from spark_job.spark.parallelism import CORES_OPTION, TaskCount
from spark_job.spark.work_folder import WorkFolder
from spark_job.stream.batch_action import BatchAction
from spark_job.stream.endings import FailedPart, QueryEnding
from spark_job.stream.projection_options import ProjectionOptions


@dataclass(frozen=True)
class RunContext:
    """What all queries of a run need."""

    run_id: UUID
    settings: Settings
    spark: SparkSession
    folder: WorkFolder
    topics: InputTopics
    task: TaskSettings
    reader: ResultReader
    sink: Sink
    kafka: KafkaInput
    backpressure: Backpressure
    accept_differing_at: Offsets
    """Where rebuilt sessions may differ from the recorded digest: at the offsets where the run begins, if a person gave
    `--accept-data-loss`; otherwise nowhere."""


def _task_count(run: RunContext, options: Mapping[str, str]) -> TaskCount:
    context, job = run.spark.sparkContext, run.settings.job
    threads = context.defaultParallelism
    cores = int(options.get(CORES_OPTION, threads))
    saves = job.period_ms > 0 and str(context.master).startswith("local")
    return TaskCount(cores, threads, fixed=job.tasks, saves=saves)


class BatchSteps:
    """The batches of a run, over all its queries."""

    def __init__(self, run: RunContext, start: Offsets, commits: CommitThread, health: JobHealth) -> None:
        """`start`: where the first batch begins. `health` records each batch."""
        self.run = run
        self.read_to = start
        """Where the next batch begins."""
        self.before = 0
        """Number of batches of the run's earlier queries: Spark counts the batches of each query from 0."""
        self._commits = commits
        self._health = health
        self._committed = run.reader.expected
        """A committed position, at most one batch behind the outbox's."""
        self._next_number = 0
        self.largest = 0
        """Offsets that the query's largest finished batch covers."""
        self._successes_to_grow: int | None = None
        self._chosen = dict(run.spark.sparkContext.getConf().getAll())
        self._tasks = _task_count(run, self._chosen)
        self._options = ProjectionOptions(self._chosen)
        self._mean_event_bytes: float | None = None
        columns = applied_rules(run.reader.expected.generation.assembly).columns
        self.columns = columns.with_trace_context() if run.settings.tracing.propagate else columns
        """The columns that are read of each record."""
        self._action = BatchAction(self.columns)

    def begin_query(self, successes_to_grow: int | None) -> None:
        """Begin another query, which counts its batches from 0. `successes_to_grow`: number of batches after which it is to end with
        GROWING; None: never.
        """
        self.before = self._next_number
        self.largest = 0
        self._successes_to_grow = successes_to_grow
        self._options = ProjectionOptions(self._chosen)

    def compute(self, frame: DataFrame, planned: BatchRange, spark_batch: int, ending: QueryEnding) -> int:
        """Run the batch's one Spark action, and hand its result over to be committed while Spark plans and computes the next batch.

        Returns how many offsets the batch covers.

        The tasks of that next batch continue the open sessions of this batch's result. If the commit fails, the run ends, and the next
        start reads the ledger.
        """
        run, number = self.run, self.before + spark_batch
        reach("query.before_action")
        began = time.perf_counter()
        at = run.reader.expected
        slices = slices_of(
            at, planned.start, planned.end, run.topics, run.accept_differing_at, self._committed
        )
        sizes = [each.end - each.start for each in slices.values() if each.end > each.start]
        self._options.suit(frame, sum(sizes), len(sizes), self._mean_event_bytes)
        tasks = self._tasks.of(sum(sizes), len(sizes))
        table = self._action.run(frame, AssemblyTask(run.task, slices), tasks)
        action_s = time.perf_counter() - began
        reach("query.after_action")
        computed = run.reader.read(table, planned)
        del table  # the hand-over may take long
        if computed is not None:
            self._mean_event_bytes = computed.result.mean_event_bytes
            self._tasks.worked(sum(computed.result.seconds.values()), sum(sizes))
        events = sum(sizes)
        if not self._commits.hand_over(
            partial(self._commit, computed, planned, events, number, action_s, ending)
        ):
            return events  # the run ends: the batch before was not committed
        self._committed = at  # the batch before is committed, or the hand-over would have failed
        self._health.batch_computed(number)
        self.read_to, self._next_number = Offsets({**self.read_to, **planned.end}), number + 1
        if self._successes_to_grow is not None:
            self._successes_to_grow -= 1
            if self._successes_to_grow == 0:
                ending.grow()
        return events

    def _commit(
        self,
        computed: ComputedBatch | None,
        planned: BatchRange,
        events: int,
        number: int,
        action_s: float,
        ending: QueryEnding,
    ) -> bool:
        """Commit one batch, in the thread of `CommitThread`; return whether it is committed. `computed`: None if there is nothing to store.

        A batch that backpressure holds back when the run ends is dropped.
        """
        run = self.run
        try:
            if computed is not None:
                if not run.backpressure.wait(lambda: ending.ends_run):
                    return False
                run.sink.commit(computed, number)
                metrics.action(action_s)
            run.kafka.show_progress(planned.end, run.topics)
            self.largest = max(self.largest, events)
            self._health.batch_committed(number)
            reach("query.after_batch")
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            ending.fail(FailedPart.COMMIT, error)
            return False
        return True
