"""What stands for Spark in the histories: it cuts batches, and lets executors with caches of their own run the job's own tasks."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa

from spark_job.assembly import known_files, rows
from spark_job.assembly.known_files import KnownFiles
from spark_job.assembly.task import AssemblyTask
from spark_job.input.columns import RecordColumns
from spark_job.input.offsets import Offsets
from spark_job.ledger.batch_size import BatchSize
from spark_job.monitoring.health import JobHealth
from spark_job.sessions.errors import DamagedStateError
from spark_job.sink.commit import Sink
from spark_job.sink.commit_thread import CommitThread
from spark_job.sink.computed_batch import BatchRange
from spark_job.spark.task_secrets import SparkTask
from spark_job.stream import batch_action
from spark_job.stream.batches import BatchSteps, RunContext
from spark_job.stream.endings import Interruption, QueryEnding, State
from tests.support.histories.random_log import RandomLog
from tests.support.reference.message import Message
from tests.support.reference.model import Record

_WORKERS = [KnownFiles() for _ in range(3)]
"""What the processes that run tasks know of files."""


class CommitsInTurn(CommitThread):
    """Commits as late as it may, when the next batch is computed or `catch_up` is called, in the test's own thread."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: Callable[[], bool] | None = None

    def hand_over(self, commit: Callable[[], bool]) -> bool:
        if not self.catch_up():
            return False
        self._waiting = commit
        return True

    def catch_up(self) -> bool:
        waiting, self._waiting = self._waiting, None
        return waiting is None or waiting()


class MemoryLoop:
    """A run's batches, one by one. Everything but Spark's own part, and the commits' thread, is the job's."""

    def __init__(self, run: RunContext, start: Offsets, size: BatchSize) -> None:
        self._size = size
        self._commits = CommitsInTurn()
        self._steps = BatchSteps(run, start, self._commits, JobHealth())
        self._begin_query()

    @property
    def max_events(self) -> int:
        return self._size.max_events

    @property
    def read_to(self) -> Offsets:
        return self._steps.read_to

    @property
    def columns(self) -> RecordColumns:
        return self._steps.columns

    @property
    def sink(self) -> Sink:
        return self._steps.run.sink

    def continued_by(self, sink: Sink) -> None:
        """Exchange the sink."""
        self._steps.run = replace(self._steps.run, sink=sink)

    def batch(self, frame: "Frame") -> None:
        """Compute one and commit it."""
        self.compute(frame)
        self._commit()

    def compute(self, frame: "Frame") -> None:
        """As Spark calls back: the batch before is committed. Where the job asks for larger batches, another query continues, which
        counts from 0.
        """
        planned = BatchRange(self.read_to, frame.ends)
        with patch.object(batch_action, "ArrowMap", _MapInProcess):
            self._steps.compute(frame, planned, self._spark_batch, self._ending)  # type: ignore[arg-type]
        self._raise_failure()
        self._spark_batch += 1
        if self._ending.state is State.GROWING:
            self._commit()
            self._size.grow()
            self._begin_query()

    def _begin_query(self) -> None:
        self._steps.begin_query(self._size.successes_to_grow)
        self._spark_batch, self._ending = 0, QueryEnding(threading.Event(), Interruption())

    def _commit(self) -> None:
        self._commits.catch_up()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._ending.failure is not None:
            raise self._ending.failure


class _Options(dict[str, str]):
    """Spark's, which change nothing here."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


class _Context:
    """Spark's context, as far as a batch uses it."""

    def __init__(self) -> None:
        self._conf = _Options()

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        """Nothing is sent: what is read again does not come from Kafka here."""


class _Session:
    """Spark's session, as far as a batch uses it."""

    def __init__(self) -> None:
        self.conf = _Options()
        self.sparkContext = _Context()


class _MapInProcess:
    """In place of `ArrowMap`."""

    def __init__(self, *_of_spark: object) -> None: ...

    def run(self, frame: "Frame", task: SparkTask) -> pa.Table:
        return frame.run(task)


class Frame:
    """A batch's records."""

    columns: Sequence[str] = ()

    def __init__(
        self,
        log: RandomLog,
        start: Offsets,
        ends: Offsets,
        chance: random.Random,
        disks: Sequence[Path],
        columns: RecordColumns,
    ) -> None:
        """`disks`: the executors' folders for open sessions."""
        self.ends, self.sparkSession = ends, _Session()
        self._log, self._chance, self._disks, self._columns = log, chance, disks, columns
        self._slices = {where.partition: (start.at(where), end) for where, end in ends.items()}
        self._is_whole = all(where.topic_id == log.topic_id for where in ends)
        """Not where the topic was made again meanwhile."""
        self._task: AssemblyTask

    def coalesce(self, _tasks: int) -> "Frame":
        return self

    def run(self, task: SparkTask) -> pa.Table:
        """Run the tasks, some of them twice, also where nothing is at hand: they say the same, and find again what was open."""
        self._task = task.task
        found: list[pa.RecordBatch] = []
        for partitions in self._tasks():
            disk = self._chance.choice(self._disks)
            batches = self._run(partitions, disk)
            told = self._told(batches)
            if self._chance.random() < 0.2:
                again = self._run(partitions, self._chance.choice([disk, disk / "none"]))
                assert self._told(again) == told, "a task must be pure"
                if self._chance.random() < 0.5:
                    batches = again
            found += batches
        return pa.Table.from_batches(found, rows.SCHEMA)

    def _tasks(self) -> list[list[int]]:
        """Partitions with visible records, put together as `coalesce` does."""
        tasks: list[list[int]] = []
        for partition in self._slices:
            if self._records(partition):
                if tasks and self._chance.random() < 0.5:
                    tasks[-1].append(partition)
                else:
                    tasks.append([partition])
        return tasks

    def _records(self, partition: int) -> list[Record]:
        return self._log.records(partition, *self._slices[partition])

    def _run(self, partitions: list[int], disk: Path) -> list[pa.RecordBatch]:
        task = replace(self._task, settings=replace(self._task.settings, cache=str(disk)))
        with patch.object(known_files, "KNOWN", self._chance.choice(_WORKERS)):
            try:
                return list(task(self._batches(partitions)))
            except DamagedStateError:
                return list(task(self._batches(partitions)))  # tried once more

    def _batches(self, partitions: list[int]) -> Iterator[pa.RecordBatch]:
        for partition in partitions:
            records = self._records(partition)
            table = self._columns.table(list(map(Message, records)))
            table = table.append_column("source", pa.array([partition] * len(records), pa.int32()))
            yield from table.to_batches(max_chunksize=self._chance.randint(1, 20))

    def _told(self, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
        """The rows in any order, without what a task says of itself."""
        told = pa.Table.from_batches(batches, rows.SCHEMA).to_pylist()
        for row in told:
            if row["kind"] == rows.PARTITION:
                detail = orjson.loads(row["detail"])
                if self._is_whole and detail["rebuilt"]:
                    assert not detail["rebuilt"]["differs"]
                del detail["seconds"], detail["rebuilt"], detail["problem"]
                # Arrow's bytes depend on how records were cut into arrays: a bit for each value, where one is missing.
                del detail["counts"]["per_event"], detail["counts"]["bytes"]
                row["detail"] = detail
        return sorted(told, key=repr)
