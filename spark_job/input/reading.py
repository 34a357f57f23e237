"""A range of offsets read from Kafka beside Spark: to find open sessions again, and to name a record that Spark cannot read."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.kafka_rights import needing

_CONSUME = 10_000
# None is joined, and no offset is committed; the client wants a name.
_GROUP = "outbox-rebuild"
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_offset = methodcaller("offset")
_WAITED_FOR = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


class RecordsGoneError(Exception):
    """Kafka answers, but has deleted records that are needed."""


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

    `client`: `[kafka]` as librdkafka takes it. `timeout_s`: from one record to the next.
    Raises RecordsGoneError, NoAnswerError, KafkaException.
    """
    consumer = Consumer(
        {
            **client,
            "group.id": _GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,  # by default it rests for a second whenever enough is queued
            "queued.max.messages.kbytes": 256 * 1024,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        with needing("Read", "topic", topic), needing("Describe", "consumer group", _GROUP):
            yield from _until(consumer, f"{topic}/{partition}", start, end, timeout_s)
    finally:
        consumer.close()


def _until(consumer: Consumer, place: str, start: int, end: int, timeout_s: float) -> Iterator[list[Any]]:
    """The end is a record, or the partition's end, at or above `end`: transactions leave offsets without records."""
    deadline = time.monotonic() + timeout_s
    behind = "no answer"
    while time.monotonic() < deadline:
        messages = consumer.consume(_CONSUME, timeout=0.05)
        errors = [message for message in messages if message.error() is not None]
        records = [message for message in messages if message.error() is None] if errors else messages
        if records:
            below = bisect_left(records, end, key=_offset)
            if below:
                yield records[:below]
            if below < len(records):
                return
            deadline = time.monotonic() + timeout_s
        for message in errors:
            error, offset = message.error(), message.offset() or 0
            assert error is not None
            if error.code() == KafkaError._PARTITION_EOF:
                if offset >= end:
                    return
                # A replica that lags behind, perhaps: it is asked again.
                behind = f"it ends at offset {offset}"
            elif error.code() in _GONE:
                raise RecordsGoneError(
                    f"{place}: Kafka has deleted offsets from {start} on, up to {end} are needed: {error.str()}"
                )
            elif not error.retriable() and error.code() not in _WAITED_FOR:
                raise KafkaException(error)
    raise NoAnswerError(
        f"{place}: Kafka did not give the records up to offset {end} within {timeout_s:g} s ([kafka] request_timeout_s): {behind}"
    )
