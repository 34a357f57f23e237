"""From what Spark collected for a batch to what the sink commits: where the outbox will be once it has."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow
from spark_job.sink import batch
from spark_job.sink.batch import BatchResult


@dataclass(frozen=True)
class BatchRange:
    """Start (inclusive) and end (exclusive) of a batch, by Spark's own word."""

    start: Offsets
    end: Offsets

    @property
    def is_empty(self) -> bool:
        """Whether no offset lies in it."""
        return all(self.start.at(where) == end for where, end in self.end.items())


@dataclass(frozen=True)
class ComputedBatch:
    """What Spark computed for a batch, and where the outbox is once that is committed."""

    planned: BatchRange
    result: BatchResult
    topics: InputTopics
    following: StreamRow
    """Its batch id is not known yet."""
    read_s: float


class ResultReader:
    """Reads the results of one run's batches, in order. All of it belongs to the thread that computes."""

    def __init__(self, position: InputPosition, input_topics: Callable[[], InputTopics]) -> None:
        """`position`: where the outbox is. `input_topics`: as they are now."""
        self.expected = position
        """Where the outbox will be once all that was read is committed: where the next batch begins."""
        self._input_topics = input_topics

    def read(self, table: pa.Table, planned: BatchRange) -> ComputedBatch | None:
        """Return what Spark computed for a batch, the input in `planned`; None where there is nothing to commit.

        Raises ContinuityError where an input topic was made again meanwhile, SettingsError for records that were cut apart among tasks, and
        what Kafka's refusal or silence raises.
        """
        if planned.is_empty:
            return None
        began = time.perf_counter()
        # Asked after the action: Spark reads on where a topic was made again meanwhile, and says nothing.
        topics = self._input_topics()
        result = batch.read(table, topics.places())
        following = self.following_row(planned, result)
        self.expected = replace(self.expected, newest=following)
        return ComputedBatch(planned, result, topics, following, time.perf_counter() - began)

    def following_row(self, planned: BatchRange, result: BatchResult) -> StreamRow:
        """The position after the batch. A partition that reached no task keeps what was open in it."""
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
