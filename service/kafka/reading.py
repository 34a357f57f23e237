"""Reads the committed records between two offsets completely or fails: one rule for every reader but Spark.

A partition has been read to an offset once the reader has received a record at or above the last wanted offset, or the report of an end at
or above the offset. An empty poll does not count, nor does an end below the offset, which a lagging replica or an open transaction may
cause: the reader waits, and fails if nothing comes in time.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.kafka.renewable_client import LASTS_S
from service.logins.kafka import logged_in

NamedPartition = tuple[str, int]
"""(topic, partition)"""

_CONSUME = 10_000
_LOOK_S = 0.2
_WAITED_FOR = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
_offset = methodcaller("offset")

# The queue is short, whatever the size of the records: librdkafka (2.16) counts neither keys nor headers of queued records. So it fetches
# much at a time, and again as soon as there is room; by default it pauses for a second when the queue is full.
_READ_AHEAD = {
    "queued.min.messages": 100,
    "queued.max.messages.kbytes": 256 * 1024,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 10,
}


def committed_consumer(
    client: Mapping[str, str | int | float | bool],
    group: str,
    reset: Literal["earliest", "error"] = "earliest",
) -> Consumer:
    """Return a consumer of committed records for a RangeReader, in bounded memory. It joins no group and commits no offset.

    `client`: `[kafka]` as librdkafka takes it. `group`: the client needs the right to describe it. Raises KafkaException, LoginFailedError.
    """
    required: dict[str, str | int | float | bool] = {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        "allow.auto.create.topics": False,
    }
    return Consumer(logged_in({"log_level": 0, **client, **_READ_AHEAD, **required}))


class EndNotReachedError(KafkaException):
    """Records that must exist did not come in time. `readable`: the reported ends of partitions that end before them."""

    def __init__(
        self, left: Mapping[NamedPartition, int], readable: Mapping[NamedPartition, int], timeout_s: float
    ) -> None:
        (topic, partition), end = min(left.items())
        name = f"{topic}/{partition}"
        others = f", nor {len(left) - 1} other partitions to theirs" if len(left) > 1 else ""
        because = (
            f"it ends at offset {readable[topic, partition]}"
            if (topic, partition) in readable
            else "no answer"
        )
        text = f"{name} was not read to offset {end} within {timeout_s:g} s{others}: {because}"
        super().__init__(KafkaError(KafkaError._TIMED_OUT, text))
        self.readable = {partition: offset for partition, offset in readable.items() if partition in left}


class PartitionFailedError(KafkaException):
    """Kafka answers with an error for `partition`."""

    def __init__(self, error: KafkaError, partition: NamedPartition) -> None:
        super().__init__(error)
        self.partition = partition


class RangeReader:
    """Reads ranges one after the other; replaces a consumer that returns nothing for long. Not thread-safe."""

    def __init__(
        self, make: Callable[[], Consumer], timeout_s: float, give_up: Callable[[], bool] = lambda: False
    ) -> None:
        """`make`: returns a consumer of committed records that reports ends of partitions. `timeout_s`: from one record to the next.

        `give_up`: called while waiting; True ends the wait.
        """
        self._make = make
        self._timeout_s = timeout_s
        self._give_up = give_up
        self._consumer = make()
        self.positions: dict[NamedPartition, int] = {}
        """For each partition of the last call of `read`, the offset after the last one read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from Kafka."""
        self._consumer.close()

    def read(self, ranges: Mapping[NamedPartition, tuple[int, int]]) -> Iterator[list[Any]]:
        """Yield the records (confluent-kafka's messages) of [start, end) of each partition in offset order, in lists.

        Raises EndNotReachedError, KafkaException.
        """
        self.positions = {partition: start for partition, (start, _) in ranges.items()}
        left = {partition: end for partition, (start, end) in ranges.items() if start < end}
        readable: dict[NamedPartition, int] = {}
        self._assign(left)
        moved = heard = time.monotonic()
        while left:
            records, errors = self._fetch()
            open_before = len(left)
            found = self._take(records, left)
            for message in errors:
                self._end(message, left, readable)
            if len(left) < open_before:
                self._leave(left)
            if found:
                yield found
            now = time.monotonic()
            moved = now if records else moved
            if records or errors:
                heard = now
            elif now - heard > LASTS_S:
                heard = now
                self._consumer.close()
                self._consumer = self._make()
                self._assign(left)
            if left and (now - moved > self._timeout_s or self._give_up()):
                raise EndNotReachedError(left, readable, self._timeout_s)

    def _assign(self, left: Mapping[NamedPartition, int]) -> None:
        self._consumer.assign([TopicPartition(*partition, self.positions[partition]) for partition in left])

    def _fetch(self) -> tuple[list[Any], list[Any]]:
        """Return the queued records and errors, or wait for the first one."""
        first = self._consumer.poll(_LOOK_S)
        if first is None:
            return [], []
        messages = [first, *self._consumer.consume(_CONSUME, timeout=0)]
        errors = [message for message in messages if message.error() is not None]
        return [message for message in messages if message.error() is None] if errors else messages, errors

    def _take(self, records: list[Any], left: dict[NamedPartition, int]) -> list[Any]:
        """Return the records of the ranges, and remove from `left` the partitions that are read to their ends.

        If a partition was truncated, the consumer starts again at its first record.
        """
        if len(self.positions) == 1 and records:
            ((partition, end),) = left.items()
            first = bisect_left(records, self.positions[partition], key=_offset)
            found = records[first : bisect_left(records, end, key=_offset)]
            self._move(partition, records[-1].offset() + 1, left)
            return found
        found = []
        for record in records:
            partition = record.topic(), record.partition()
            if partition in left and self.positions[partition] <= record.offset() < left[partition]:
                found.append(record)
            if partition in left:
                self._move(partition, record.offset() + 1, left)
        return found

    def _end(
        self, message: Any, left: dict[NamedPartition, int], readable: dict[NamedPartition, int]
    ) -> None:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            partition = message.topic(), message.partition()
            if partition in left:
                # The reported offset is the position, past commit markers and aborted records.
                readable[partition] = message.offset()
                self._move(partition, message.offset(), left)
        elif not error.retriable() and error.code() not in _WAITED_FOR:
            partition = message.topic(), message.partition()
            raise PartitionFailedError(error, partition) if partition in left else KafkaException(error)

    def _move(self, partition: NamedPartition, position: int, left: dict[NamedPartition, int]) -> None:
        end = left[partition]
        self.positions[partition] = min(end, max(self.positions[partition], position))
        if position >= end:
            del left[partition]

    def _leave(self, left: Mapping[NamedPartition, int]) -> None:
        """Stop fetching the partitions that are read to their ends."""
        assigned = [(each.topic, each.partition) for each in self._consumer.assignment()]
        done = [TopicPartition(*partition) for partition in assigned if partition not in left]
        if done:
            self._consumer.incremental_unassign(done)
