"""Reads a lane's progress records back from Kafka, the newest first."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.progress import Progress, lane_of_key

_FIRST_WINDOW = 256
_WINDOW_GROWTH = 16
# Of so many records at once, so that a long history does not have to fit in memory.
_LARGEST_WINDOW = 65_536


class Record(NamedTuple):
    """A record of the progress topic. `value` None: the key has been put aside."""

    key: bytes
    value: bytes | None


class OpenTransactionError(KafkaException):
    """A transaction is open on the progress partition, from this offset on: what is behind it cannot be read."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        text = f"{topic}[{partition}] is readable up to {offset} only: another transaction is open on it"
        super().__init__(KafkaError(KafkaError._TIMED_OUT, text))
        self.topic, self.partition, self.offset = topic, partition, offset


class Newest(NamedTuple):
    """What the end of a lane's partition holds. `later`: records of later epochs, newest of each lane."""

    record: Progress | None
    later: dict[tuple[int, int], Progress]


def read_newest(
    consumer: Consumer,
    topic: str,
    partition: int,
    epoch: int,
    lane: int,
    high_watermark: int,
    timeout_s: float,
    give_up: Callable[[], bool],
) -> Newest:
    """Return the newest committed progress record of a lane, and those of later epochs behind it.

    Whatever of a later epoch is before the lane's own newest record was dealt with when that was written.
    `consumer`, `high_watermark` and errors: see `records_backwards`; ValueError for a record that cannot be read.
    """
    seen: set[tuple[int, int]] = set()
    later: dict[tuple[int, int], Progress] = {}
    for record in records_backwards(consumer, topic, partition, high_watermark, timeout_s, give_up):
        place = lane_of_key(record.key)
        if place is None or place in seen:
            continue
        seen.add(place)
        if place == (epoch, lane):
            return Newest(None if record.value is None else Progress.decode(record.value), later)
        if place[0] > epoch and record.value is not None:
            later[place] = Progress.decode(record.value)
    return Newest(None, later)


def records_backwards(
    consumer: Consumer,
    topic: str,
    partition: int,
    high_watermark: int,
    timeout_s: float,
    give_up: Callable[[], bool],
) -> Iterator[Record]:
    """Yield the committed records of a partition, newest first.

    `consumer` reads committed records only and reports ends of partitions; `high_watermark` was asked for with a
    read_uncommitted look after `init_transactions` had ended the lane's open transaction. Reads in growing windows,
    since a compacted partition may still hold much that is old.
    Raises KafkaException (_TIMED_OUT) when a window's end is not reached within `timeout_s` or `give_up` says so;
    OpenTransactionError where a transaction hides it.
    """
    size = _FIRST_WINDOW
    end = high_watermark
    while end > 0:
        start = max(0, end - size)
        yield from reversed(
            _window(
                consumer, TopicPartition(topic, partition, start), end, time.monotonic() + timeout_s, give_up
            )
        )
        end = start
        size = min(size * _WINDOW_GROWTH, _LARGEST_WINDOW)


def _window(
    consumer: Consumer, start: TopicPartition, end: int, deadline: float, give_up: Callable[[], bool]
) -> list[Record]:
    """Return the records from `start` up to `end`, exclusive."""
    consumer.assign([start])
    found: list[Record] = []
    readable: int | None = None
    while True:
        if time.monotonic() > deadline or give_up():
            if readable is not None and not give_up():
                raise OpenTransactionError(start.topic, start.partition, readable)
            place = f"{start.topic}[{start.partition}]"
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"the end of {place} at {end} was not reached, no answer")
            )
        message = consumer.poll(0.2)
        if message is None:
            # Proves nothing: only the end of the partition, at or past the high watermark, does.
            continue
        error = message.error()
        offset = message.offset() or 0
        if error is None:
            if offset >= end:
                return found
            found.append(Record(message.key() or b"", message.value()))
            if offset == end - 1:
                return found
        elif error.code() == KafkaError._PARTITION_EOF:
            readable = offset
            if readable >= end:
                return found
        else:
            raise KafkaException(error)
