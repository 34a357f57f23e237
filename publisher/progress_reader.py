"""Reads a lane's newest progress record back from Kafka."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.progress import Progress

_FIRST_WINDOW = 256


def read_progress(
    consumer: Consumer,
    topic: str,
    partition: int,
    key: bytes,
    high_watermark: int,
    timeout_s: float,
    give_up: Callable[[], bool],
) -> Progress | None:
    """Return the newest committed progress record of a lane, None where there is none. Raises as `read_newest`, ValueError."""
    value = read_newest(consumer, topic, partition, key, high_watermark, timeout_s, give_up)
    return None if value is None else Progress.decode(value)


def read_newest(
    consumer: Consumer,
    topic: str,
    partition: int,
    key: bytes,
    high_watermark: int,
    timeout_s: float,
    give_up: Callable[[], bool],
) -> bytes | None:
    """Return the value of the newest committed record with this key, None where there is none.

    `consumer` reads committed records only and reports ends of partitions; `high_watermark` was asked for with a
    read_uncommitted look after `init_transactions` had ended the lane's open transaction. Reads backwards in growing
    windows, since a compacted partition may still hold much that is old.
    Raises KafkaException (_TIMED_OUT) when the end is not reached in time or `give_up` says so.
    """
    deadline = time.monotonic() + timeout_s
    window = _FIRST_WINDOW
    while True:
        start = max(0, high_watermark - window)
        value = _last_value(
            consumer, TopicPartition(topic, partition, start), key, high_watermark, deadline, give_up
        )
        if value is not None or start == 0:
            return value
        window *= 16


def _last_value(
    consumer: Consumer,
    start: TopicPartition,
    key: bytes,
    high_watermark: int,
    deadline: float,
    give_up: Callable[[], bool],
) -> bytes | None:
    if high_watermark == 0:
        return None
    consumer.assign([start])
    found: bytes | None = None
    readable: int | None = None
    while True:
        if time.monotonic() > deadline or give_up():
            why = (
                "no answer"
                if readable is None
                else f"readable up to {readable} only: another transaction is open on it"
            )
            place = f"{start.topic}[{start.partition}]"
            raise KafkaException(
                KafkaError(
                    KafkaError._TIMED_OUT, f"the end of {place} at {high_watermark} was not reached, {why}"
                )
            )
        message = consumer.poll(0.2)
        if message is None:
            # Proves nothing: only the end of the partition, at or past the high watermark, does.
            continue
        error = message.error()
        if error is None:
            if message.key() == key and message.value() is not None:
                found = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:
            readable = message.offset() or 0
            if readable >= high_watermark:
                return found
        else:
            raise KafkaException(error)
