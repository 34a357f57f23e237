"""Turn what Spark collected for a batch into what the sink commits, with the position after the commit."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow
from spark_job.sink import batch_result
from spark_job.sink.batch_result import BatchResult


@dataclass(frozen=True)
class BatchRange:
    """Start (inclusive) and end (exclusive) of a batch, as Spark reports them."""

    start: Offsets
    end: Offsets

    @property
    def is_empty(self) -> bool:
        """Whether it contains no offset."""
        return all(self.start.at(where) == end for where, end in self.end.items())


@dataclass(frozen=True)
class ComputedBatch:
    """What Spark computed for a batch, and the position after its commit."""

    planned: BatchRange
    result: BatchResult
    topics: InputTopics
    following: StreamRow
    """Its batch id is not known yet."""
    read_s: float


class ResultReader:
    """Reads the results of one run's batches, in order. The thread that computes owns all of it."""

    def __init__(self, position: InputPosition, input_topics: Callable[[], InputTopics]) -> None:
        """`position`: the outbox's. `input_topics`: asks for the topics as they are now."""
        self.expected = position
        """The position after the commit of all results read so far: where the next batch begins."""
        self._input_topics = input_topics

    def read(self, table: pa.Table, planned: BatchRange) -> ComputedBatch | None:
        """Return what Spark computed for a batch, the input in `planned`; None if there is nothing to commit.

        Raises ContinuityError if an input topic was created again meanwhile, SettingsError for records that were cut apart among tasks, and
        what `input_topics` raises if Kafka refuses or does not answer.
        """
        if planned.is_empty:
            return None
        began = time.perf_counter()
        # Asked after the action: if a topic was created again meanwhile, Spark reads the new one without an error.
        topics = self._input_topics()
        result = batch_result.read(table, topics.places())
        following = self.following_row(planned, result)
        self.expected = replace(self.expected, newest=following)
        return ComputedBatch(planned, result, topics, following, time.perf_counter() - began)

    def following_row(self, planned: BatchRange, result: BatchResult) -> StreamRow:
        """Return the position after the batch. A partition that reached no task keeps its open sessions."""
        opened: dict[TopicPartition, OpenPartition] = dict(self.expected.open)
        opened |= {where: opened[where].moved(end) for where, end in planned.end.items() if where in opened}
        for found in result.partitions:
            now = found.open(planned.end[found.where])
            if now is None:
                opened.pop(found.where, None)
            else:
                opened[found.where] = now
        end = Offsets({**self.expected.end, **planned.end})
        return StreamRow(0, end, OpenPartitions(opened), datetime.now(UTC))
