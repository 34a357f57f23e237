"""Reading whole topics back as a `read_committed` consumer sees them."""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from service.kafka.record_headers import headers_of
from service.kafka.topic_ids import topic_id_text
from service.settings import KafkaSettings

_TIMEOUT_S = 60.0


class ReadError(Exception):
    """A topic could not be read to its end."""


@dataclass(frozen=True)
class KafkaRecord:
    """A record as it was read. `headers` keeps the last value of each name; `timestamp_ms` is Kafka's own."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def read_topic(kafka: KafkaSettings, topic: str) -> list[KafkaRecord]:
    """Every committed record of a topic, in offset order within each partition.

    Reads each partition until its end-of-partition event reports an offset at or past the high watermark that was
    there at the start: an empty poll proves nothing. Raises ReadError where that does not happen within a minute,
    as when a transaction was left open.
    """
    consumer = _consumer(kafka)
    try:
        ends = _end_offsets(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        return _read_to(consumer, topic, ends)
    finally:
        consumer.close()


def end_offsets(kafka: KafkaSettings, topic: str) -> dict[int, int]:
    """The high watermark of each partition of a topic. Raises ReadError where there is no such topic."""
    consumer = _consumer(kafka)
    try:
        return _end_offsets(consumer, topic)
    finally:
        consumer.close()


def topic_id(kafka: KafkaSettings, topic: str) -> str:
    """Kafka's own id of a topic, as Kafka's tools write it. Raises ReadError where there is no such topic."""
    admin = AdminClient(kafka.client(log_level=3))  # has to outlive its request
    try:
        return topic_id_text(
            admin.describe_topics(TopicCollection([topic]))[topic].result(_TIMEOUT_S).topic_id
        )
    except KafkaException as error:
        raise ReadError(f"topic {topic!r}: {error}") from error


def _consumer(kafka: KafkaSettings) -> Consumer:
    options: dict[str, str | int | float | bool] = {
        "group.id": "spark-outbox-demo-reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "log_level": 3,
    }
    return Consumer(kafka.client(**options))


def _end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise ReadError(f"topic {topic!r}: {found.error.str()}")
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)[1]
        for partition in sorted(found.partitions)
    }


def _read_to(consumer: Consumer, topic: str, ends: dict[int, int]) -> list[KafkaRecord]:
    records: list[KafkaRecord] = []
    unread = {partition for partition, end in ends.items() if end > 0}
    deadline = time.monotonic() + _TIMEOUT_S
    while unread:
        for message in consumer.consume(10_000, timeout=0.2):
            partition, offset, error = message.partition(), message.offset(), message.error()
            assert partition is not None and offset is not None  # noqa: PT018 - None only before it was sent
            if error is None:
                records.append(_record(message, topic, partition, offset))
            elif error.code() != KafkaError._PARTITION_EOF:
                raise ReadError(f"topic {topic!r} cannot be read: {error.str()}")
            elif offset >= ends[partition]:
                unread.discard(partition)
        if time.monotonic() > deadline:
            raise ReadError(
                f"topic {topic!r}: partitions {sorted(unread)} were not read to their ends within "
                f"{_TIMEOUT_S:g} s; is a transaction still open?"
            )
    return records


def _record(message: Message, topic: str, partition: int, offset: int) -> KafkaRecord:
    return KafkaRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers={name: value for name, value in headers_of(message) if isinstance(value, bytes)},
    )
