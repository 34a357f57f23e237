"""Reads progress records back from Kafka, the newest first."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.kafka import clients
from publisher.kafka.open_transactions import explanation
from publisher.kafka.topics import Topics
from publisher.protocol.progress import Progress, lane_of_key
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.settings import KafkaSettings

_FIRST_WINDOW = 256
_WINDOW_GROWTH = 16
# Of so many records at once, so that a long history does not have to fit in memory.
_LARGEST_WINDOW = 65_536


class StoredProgress(NamedTuple):
    """A record of the progress topic. `value` None: the key has been put aside."""

    key: bytes
    value: bytes | None


class OpenTransactionError(KafkaException):
    """A transaction is open on the progress partition, from this offset on: what is behind it cannot be read."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        text = f"{topic}[{partition}] is readable up to {offset} only: another transaction is open on it"
        super().__init__(KafkaError(KafkaError._TIMED_OUT, text))
        self.topic, self.partition, self.offset = topic, partition, offset


@contextmanager
def progress_records(
    kafka: KafkaSettings,
    topics: Topics,
    topic: str,
    partition: int,
    give_up: Callable[[], bool] = lambda: False,
    *,
    committed: bool = False,
) -> Iterator[Iterator[StoredProgress]]:
    """Yield the committed records of a partition, newest first. `committed`: only what no open transaction hides now, without waiting.

    Raises StoppedError behind a transaction that stays open, and for a record at which the body raises ValueError; KafkaException.
    """
    high_watermark = topics.high_watermark(topic, partition, committed=committed)
    consumer = clients.progress_consumer(kafka)
    try:
        with clients.reading(kafka, topic):
            yield records_backwards(
                consumer, topic, partition, high_watermark, kafka.request_timeout_s, give_up
            )
    except OpenTransactionError as error:
        reason = explanation(error.topic, {error.partition: error.offset})
        raise StoppedError(StopReason.OPEN_TRANSACTION, reason, retry=True) from error
    except ValueError as error:
        raise StoppedError(
            StopReason.OTHER_OUTBOX,
            f"{topic}[{partition}]: {error}. Something else writes to this progress topic, or a newer publisher did; "
            "use that version, or name another [publisher] progress_topic before the first start",
        ) from error
    finally:
        consumer.close()


class Newest(NamedTuple):
    """What the end of a lane's partition holds. `later`: records of later epochs, newest of each lane."""

    record: Progress | None
    later: dict[tuple[int, int], Progress]


def newest_of(records: Iterator[StoredProgress], epoch: int, lane: int) -> Newest:
    """Return the newest record of a lane, and those of later epochs behind it.

    Whatever of a later epoch is before the lane's own newest record was dealt with when that was written.
    Raises ValueError for a record that cannot be read.
    """
    seen: set[tuple[int, int]] = set()
    later: dict[tuple[int, int], Progress] = {}
    for record in records:
        place = lane_of_key(record.key)
        if place is None or place in seen:
            continue
        seen.add(place)
        if place == (epoch, lane):
            return Newest(None if record.value is None else Progress.decode(record.value), later)
        if place[0] > epoch and record.value is not None:
            later[place] = Progress.decode(record.value)
    return Newest(None, later)


def later_than(
    records: Iterator[StoredProgress], epoch: int, least: int = _FIRST_WINDOW
) -> dict[tuple[int, int], Progress]:
    """Return the newest records of lanes of later epochs in a partition that no lane of `epoch` has, without reading all of it.

    It ends at a record of `epoch` or an earlier one, though not before `least` records: its writer had found and dealt with whatever of a
    later epoch was there before. Raises ValueError for a record that cannot be read.
    """
    later: dict[tuple[int, int], Progress | None] = {}
    for count, record in enumerate(records, 1):
        place = lane_of_key(record.key)
        if place is not None and place[0] > epoch:
            later.setdefault(place, None if record.value is None else Progress.decode(record.value))
        elif place is not None and record.value is not None and count >= least:
            break
    return {place: record for place, record in later.items() if record is not None}


def records_backwards(
    consumer: Consumer,
    topic: str,
    partition: int,
    high_watermark: int,
    timeout_s: float,
    give_up: Callable[[], bool],
) -> Iterator[StoredProgress]:
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
) -> list[StoredProgress]:
    """Return the records from `start` up to `end`, exclusive."""
    consumer.assign([start])
    found: list[StoredProgress] = []
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
            found.append(StoredProgress(message.key() or b"", message.value()))
            if offset == end - 1:
                return found
        elif error.code() == KafkaError._PARTITION_EOF:
            readable = offset
            if readable >= end:
                return found
        else:
            raise KafkaException(error)
