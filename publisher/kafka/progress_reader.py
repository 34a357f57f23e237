"""Reads progress records from Kafka, newest first."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from contract.progress import Progress, lane_of_key
from publisher.kafka import clients
from publisher.kafka.open_transactions import explanation
from publisher.kafka.topics import Topics
from publisher.protocol.epochs import LaneId
from publisher.protocol.remediation import FORGED
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.kafka.reading import EndNotReachedError, RangeReader
from service.settings import KafkaSettings

_FIRST_WINDOW = 256
_WINDOW_GROWTH = 16
# The most records per window, so that a long history need not fit in memory.
_LARGEST_WINDOW = 65_536
# A publisher's records have less than a kilobyte; another writer's may have megabytes.
_LARGEST_WINDOW_BYTES = 64 << 20
MOST_LATER = 1_000
"""The most lane epochs in Kafka that a ledger may lack. A restored ledger lacks a few."""


class StoredProgress(NamedTuple):
    """A record of the progress topic. `value`: None for a tombstone, which deletes the key."""

    key: bytes
    value: bytes | None


class OpenTransactionError(KafkaException):
    """A transaction is open on the progress partition from this offset on, and hides all later records."""

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
    without_waiting: bool = False,
) -> Iterator[Iterator[StoredProgress]]:
    """Yield the committed records of a partition, newest first. `without_waiting`: only those before the first open transaction.

    Raises as `partition_records`.
    """
    with partition_records(kafka, topics, topic, give_up, without_waiting=without_waiting) as records_of:
        yield records_of(partition)


@contextmanager
def partition_records(
    kafka: KafkaSettings,
    topics: Topics,
    topic: str,
    give_up: Callable[[], bool] = lambda: False,
    *,
    without_waiting: bool = False,
) -> Iterator[Callable[[int], Iterator[StoredProgress]]]:
    """Yield a function that returns the records of a partition, as `progress_records` does. It uses one consumer for all partitions, one
    partition after another.

    Raises StoppedError if a transaction stays open, and if the block raises ValueError for a record; KafkaException.
    """
    partition = 0

    def records_of(number: int) -> Iterator[StoredProgress]:
        nonlocal partition
        partition = number
        high_watermark = topics.high_watermark(topic, number, committed=without_waiting)
        records = records_backwards(reader, topic, number, high_watermark)
        return (record for record in records if _belongs(record.key, number))

    try:
        with clients.committed_reader(kafka, give_up) as reader, clients.reading(kafka, topic):
            yield records_of
    except OpenTransactionError as error:
        reason = explanation(error.topic, {error.partition: error.offset})
        raise StoppedError(StopReason.OPEN_TRANSACTION, reason, retry=True) from error
    except ValueError as error:
        raise StoppedError(
            StopReason.OTHER_OUTBOX,
            f"{topic}[{partition}]: {error}. Something else writes to this progress topic, or a newer publisher did; "
            f"use that version. If there is none: {FORGED}",
        ) from error


def _belongs(key: bytes, partition: int) -> bool:
    """Whether publishers write records of this key to this partition. Tombstones, too, are written only to the lane's own partition."""
    lane_id = lane_of_key(key)
    return lane_id is None or lane_id[1] == partition


class Newest(NamedTuple):
    """The newest records of a lane's partition. `record`: the lane's own; `later`: the newest record of each lane of later epochs."""

    record: Progress | None
    later: dict[LaneId, Progress]


def newest_of(records: Iterator[StoredProgress], epoch: int, lane: int) -> Newest:
    """Return a lane's newest record, and the newer records of later epochs.

    Records of later epochs that are older than the lane's own newest record were handled before that record was written.
    Raises ValueError for a record that cannot be read, and for more than MOST_LATER lanes of this and later epochs.
    """
    seen: set[LaneId] = set()
    later: dict[LaneId, Progress] = {}
    for record in records:
        lane_id = lane_of_key(record.key)
        if lane_id is None or lane_id[0] < epoch or lane_id in seen:
            continue
        seen.add(lane_id)
        _check_later(len(seen))
        if lane_id == (epoch, lane):
            return Newest(None if record.value is None else Progress.decode(record.value), later)
        if lane_id[0] > epoch and record.value is not None:
            later[lane_id] = Progress.decode(record.value)
    return Newest(None, later)


def later_than(
    records: Iterator[StoredProgress], epoch: int, least: int = _FIRST_WINDOW
) -> dict[LaneId, Progress]:
    """Return the newest records of lanes of later epochs, without reading the whole partition. For a partition that no lane of `epoch` has.

    Reading ends at a record of `epoch` or an earlier epoch, after at least `least` records: the writer of that record had handled all older
    records of later epochs. Raises ValueError for a record that cannot be read, and for more than MOST_LATER lanes of later epochs.
    """
    later: dict[LaneId, Progress | None] = {}
    for count, record in enumerate(records, 1):
        lane_id = lane_of_key(record.key)
        if lane_id is not None and lane_id[0] > epoch:
            later.setdefault(lane_id, None if record.value is None else Progress.decode(record.value))
            _check_later(len(later))
        elif lane_id is not None and record.value is not None and count >= least:
            break
    return {lane_id: record for lane_id, record in later.items() if record is not None}


def _check_later(epochs: int) -> None:
    if epochs > MOST_LATER:
        raise ValueError(
            f"it has records of {MOST_LATER:,} or more lane epochs that this ledger does not have"
        )


def records_backwards(
    reader: RangeReader, topic: str, partition: int, high_watermark: int
) -> Iterator[StoredProgress]:
    """Yield the committed records of a partition, newest first.

    `high_watermark`: the end for a read_uncommitted reader, read after `init_transactions` has ended the lane's open transaction; if the
    lane is not fenced, the end for a read_committed one. The windows grow, because a compacted partition may still hold many old records.
    Raises KafkaException; it is an OpenTransactionError if a transaction hides the end of a window.
    """
    size = _FIRST_WINDOW
    end = high_watermark
    while end > 0:
        start = max(0, end - size)
        window = _Window(start)
        try:
            for block in reader.read({(topic, partition): (start, end)}):
                for message in block:
                    window.add(message.offset(), StoredProgress(message.key() or b"", message.value()))
        except EndNotReachedError as error:
            if not error.readable:
                raise
            raise OpenTransactionError(topic, partition, error.readable[topic, partition]) from error
        yield from window.backwards()
        size = min((end - window.start) * _WINDOW_GROWTH, _LARGEST_WINDOW)
        end = window.start


class _Window:
    """The newest records of a window, as many as fit in memory. `start`: the records from this offset on are complete."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._records: deque[tuple[int, StoredProgress]] = deque()
        self._bytes = 0

    def add(self, offset: int, record: StoredProgress) -> None:
        self._records.append((offset, record))
        self._bytes += _size(record)
        while self._bytes > _LARGEST_WINDOW_BYTES and len(self._records) > 1:
            left_out, dropped = self._records.popleft()
            self._bytes -= _size(dropped)
            self.start = left_out + 1

    def backwards(self) -> Iterator[StoredProgress]:
        while self._records:
            yield self._records.pop()[1]


def _size(record: StoredProgress) -> int:
    return len(record.key) + len(record.value or b"")
