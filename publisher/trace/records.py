"""Finds the records of outputs in Kafka, by the header `outbox-id`, between given offsets."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaException, Message

from publisher.kafka.clients import committed_reader, reading
from publisher.kafka.topics import Topics
from service.errors import UnavailableError
from service.kafka.client import admin_client, failure_of
from service.kafka.reading import EndNotReachedError, NamedPartition
from service.kafka.record_headers import headers_of
from service.settings import KafkaSettings

OffsetRange = tuple[int, int]
"""First and last offset, both inclusive."""
OffsetRanges = Mapping[NamedPartition, OffsetRange]


class Copy(NamedTuple):
    """A record of an output. `replay`: None if a lane sent it."""

    outbox_id: str
    revision: int
    replay: str | None
    topic: str
    partition: int
    offset: int


@contextmanager
def explaining(settings: KafkaSettings) -> Iterator[None]:
    """Raise UnavailableError or RefusedError, with the reason and what to correct, if the block cannot read Kafka."""
    try:
        yield
    except EndNotReachedError as error:
        raise UnavailableError(
            f"{error.args[0].str()}: Kafka does not answer, or a transaction is open there. Try again"
        ) from error
    except KafkaException as error:
        raise failure_of(settings, error) from error


def copies(settings: KafkaSettings, offsets: OffsetRanges, outbox_ids: Collection[str]) -> list[Copy]:
    """Return the committed records of these outputs between the offsets, which the partitions must have. Raises KafkaException."""
    wanted = set(outbox_ids)
    read = (_copy(message) for message in _records(settings, offsets))
    found = [copy for copy in read if copy.outbox_id in wanted]
    return sorted(found, key=lambda copy: (copy.topic, copy.partition, copy.offset))


class StoredRecord(NamedTuple):
    """A record, as its headers describe it. `outbox_id`: None if no publisher sent it. `key`: as text, None if the record has no key."""

    outbox_id: str | None
    revision: int
    replay: str | None
    key: str | None
    timestamp_ms: int | None


def record_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> StoredRecord | None:
    """Return the committed record at this offset, None if there is none now. Raises as `explaining`."""
    with explaining(settings):
        topics = Topics(admin_client(settings), timeout_s=settings.request_timeout_s, create=False)
        if offset >= topics.high_watermark(topic, partition):
            return None
        # There is none if the offset belongs to an aborted transaction or a commit marker, or if its record was compacted or has expired.
        there = next(_records(settings, {(topic, partition): (offset, offset)}), None)
    return None if there is None else _record(there)


def _records(settings: KafkaSettings, offsets: OffsetRanges) -> Iterator[Message]:
    ranges = {partition: (first, last + 1) for partition, (first, last) in offsets.items()}
    topics = sorted({topic for topic, _ in offsets})
    with committed_reader(settings) as reader, reading(settings, *topics):
        for messages in reader.read(ranges):
            yield from messages


def _record(message: Message) -> StoredRecord:
    copy = _copy(message)
    key: Any = message.key()
    kind, at_ms = message.timestamp()
    return StoredRecord(
        copy.outbox_id or None,
        copy.revision,
        copy.replay,
        None if key is None else key.decode("utf-8", "backslashreplace"),
        at_ms if kind != TIMESTAMP_NOT_AVAILABLE else None,
    )


def _copy(message: Message) -> Copy:
    headers = {name: value or b"" for name, value in headers_of(message)}
    revision = headers.get("outbox-revision", b"")
    replay = headers.get("outbox-replay")
    return Copy(
        headers.get("outbox-id", b"").decode("utf-8", "backslashreplace"),
        int(revision) if revision.isdigit() and len(revision) < 10 else 0,
        None if replay is None else replay.decode("utf-8", "backslashreplace"),
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
    )
