"""Read ranges of offsets from Kafka without Spark, for rebuilds, records whose times Spark would change, `spark-job try` and `diff`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError

from service.kafka.reading import (
    EndNotReachedError,
    NamedPartition,
    PartitionFailedError,
    RangeReader,
    committed_consumer,
)
from service.kafka.rights import needing

# No group is joined, and no offset is committed; the client requires a name.
_GROUP = "outbox-rebuild"
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class RecordsGoneError(Exception):
    """Kafka has deleted records that are needed."""


class NoAnswerError(Exception):
    """Kafka did not give the records in time."""


def committed_records(
    client: Mapping[str, str | int | float | bool],
    topic: str,
    partition: int,
    start: int,
    end: int,
    timeout_s: float,
) -> Iterator[list[Any]]:
    """Yield the committed records of [start, end) in offset order, as confluent-kafka's messages, some at a time.

    `client`: `[kafka]` as librdkafka takes it. `timeout_s`: the longest wait for the next record.
    Raises RecordsGoneError, NoAnswerError, KafkaException.
    """
    yield from committed_ranges(client, {(topic, partition): (start, end)}, timeout_s)


def committed_ranges(
    client: Mapping[str, str | int | float | bool],
    ranges: Mapping[NamedPartition, tuple[int, int]],
    timeout_s: float,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[list[Any]]:
    """As `committed_records`, for several partitions, each in offset order.

    `give_up` is called while waiting; True ends the wait with NoAnswerError.
    """
    try:
        with (
            RangeReader(lambda: committed_consumer(client, _GROUP, "error"), timeout_s, give_up) as reader,
            needing("Read", "topic", *sorted({topic for topic, _ in ranges})),
            needing("Describe", "consumer group", _GROUP),
        ):
            yield from reader.read(ranges)
    except EndNotReachedError as error:
        raise NoAnswerError(f"{error.args[0].str()} ([kafka] request_timeout_s)") from error
    except PartitionFailedError as error:
        if error.args[0].code() not in _GONE:
            raise
        (topic, partition), (start, end) = error.partition, ranges[error.partition]
        raise RecordsGoneError(
            f"Kafka has deleted some of the records that are needed: {topic}/{partition} from {start} up to {end}: {error.args[0].str()}"
        ) from error
