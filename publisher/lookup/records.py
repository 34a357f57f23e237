"""Where Kafka has the records of some outputs: read within given offsets, told by the header `outbox-id`."""

import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from publisher.kafka.clients import progress_consumer, reading
from service.errors import UnavailableError
from service.record_headers import headers_of
from service.settings import KafkaSettings

_FETCH_MESSAGES = 10_000

Place = tuple[str, int]
"""(topic, partition)"""
Range = tuple[int, int]
"""First and last offset, both inclusive."""
Offsets = Mapping[Place, Range]


class Copy(NamedTuple):
    """A record of an output. `replay` None: it was sent by a lane."""

    outbox_id: str
    revision: int
    replay: str | None
    topic: str
    partition: int
    offset: int


def copies(settings: KafkaSettings, offsets: Offsets, outbox_ids: Collection[str]) -> list[Copy]:
    """Return the committed records of these outputs within the offsets. Raises UnavailableError, KafkaException."""
    found: list[Copy] = []
    wanted = set(outbox_ids)
    ends = {place: last for place, (_, last) in offsets.items()}
    consumer = progress_consumer(settings)
    try:
        consumer.assign(
            [TopicPartition(topic, partition, first) for (topic, partition), (first, _) in offsets.items()]
        )
        moved = time.monotonic()
        while ends:
            messages = consumer.consume(_FETCH_MESSAGES, timeout=0.5)
            if messages:
                moved = time.monotonic()
            elif time.monotonic() - moved > settings.request_timeout_s:
                raise UnavailableError(
                    f"{len(ends)} partitions were not read to their ends within {settings.request_timeout_s:g} s: Kafka does not answer, "
                    "or a transaction is open there. Try again"
                )
            with reading(settings, *sorted({topic for topic, _ in offsets})):
                for message in messages:
                    _take(message, ends, wanted, found)
            _leave(consumer, offsets, ends)
    finally:
        consumer.close()
    return sorted(found, key=lambda copy: (copy.topic, copy.partition, copy.offset))


class RecordThere(NamedTuple):
    """A record, by what its headers say. `outbox_id` None: no publisher sent it. `key`: its key as text, None where it has none."""

    outbox_id: str | None
    revision: int
    replay: str | None
    key: str | None
    timestamp_ms: int | None


def record_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> RecordThere | None:
    """Return the committed record at this offset; None: there is none (any more). Raises UnavailableError, KafkaException."""
    consumer = progress_consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + settings.request_timeout_s
        with reading(settings, topic):
            while time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                # Behind it: what was there is an aborted transaction's, a commit marker, compacted or expired.
                return None if error is not None or message.offset() != offset else _record(message)
    finally:
        consumer.close()
    raise UnavailableError(
        f"{topic}/{partition}/{offset} was not read within {settings.request_timeout_s:g} s: Kafka does not answer, or a transaction is "
        "open there. Try again"
    )


def _record(message: Message) -> RecordThere:
    copy = _copy(message, "", 0, 0)
    key: Any = message.key()
    kind, at_ms = message.timestamp()
    return RecordThere(
        copy.outbox_id or None,
        copy.revision,
        copy.replay,
        None if key is None else key.decode("utf-8", "backslashreplace"),
        at_ms if kind != TIMESTAMP_NOT_AVAILABLE else None,
    )


def _take(message: Message, ends: dict[Place, int], outbox_ids: set[str], found: list[Copy]) -> None:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    place = message.topic() or "", message.partition() or 0
    offset = message.offset() or 0
    if place not in ends:
        return
    if error is None and offset <= ends[place]:
        copy = _copy(message, *place, offset)
        if copy.outbox_id in outbox_ids:
            found.append(copy)
    if error is not None or offset >= ends[place]:
        del ends[place]


def _leave(consumer: Consumer, offsets: Offsets, ends: Mapping[Place, int]) -> None:
    """Read on only where the last offset was not reached."""
    assigned = {(each.topic, each.partition) for each in consumer.assignment()}
    done = [TopicPartition(*place) for place in offsets if place in assigned and place not in ends]
    if done:
        consumer.incremental_unassign(done)


def _copy(message: Message, topic: str, partition: int, offset: int) -> Copy:
    headers = {name: value or b"" for name, value in headers_of(message)}
    revision = headers.get("outbox-revision", b"")
    replay = headers.get("outbox-replay")
    return Copy(
        headers.get("outbox-id", b"").decode("utf-8", "backslashreplace"),
        int(revision) if revision.isdigit() else 0,
        None if replay is None else replay.decode("utf-8", "backslashreplace"),
        topic,
        partition,
        offset,
    )
