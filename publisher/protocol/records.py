"""Converts one outbox row to Kafka records.

Every record carries the header `outbox-id` = `<topic id>/<partition>/<offset of the session's end>/<index within the session>`,
which is the same after any restart or replay. A record of a revision above 0 also has `outbox-revision`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from contract import header_values
from publisher.protocol.cloud_events import CloudEvents
from service.settings import PublisherSettings

Header = tuple[str, str | bytes | None]
DeliveryReport = Callable[[KafkaError | None, Message], None]
Produce = Callable[..., None]

ERASED_HEADER = "outbox-erased"
"""The header of tombstones of `publisher erase`, which have no `outbox-id`. Its value is the outbox's uuid."""
ANY_PARTITION = -1
SENT_NOW = 0
"""The timestamp that librdkafka reads as "the time of sending". A record of 1970-01-01 00:00 UTC can therefore not be sent."""
_INDEXES = [b"%d" % index for index in range(1_000)]


class RowKey(NamedTuple):
    """The primary key of a row of the outbox; keys sort in the order of delivery. Written `BATCH/SESSION_KEY`."""

    batch_id: int
    session_key: str

    @classmethod
    def parse(cls, text: str) -> "RowKey":
        """Read `BATCH/SESSION_KEY`; the session key may hold slashes. Raises ValueError."""
        batch, slash, session_key = text.partition("/")
        if not (slash and session_key and batch.isascii() and batch.isdigit() and int(batch) < 2**63):
            raise ValueError(f"{text!r} names no row: BATCH/SESSION_KEY, as `publisher parked list` shows it")
        return cls(int(batch), session_key)

    def __str__(self) -> str:
        return f"{self.batch_id}/{self.session_key}"


class Row(NamedTuple):
    """A row of `outbox.session_output`: the outputs of one session_key in one batch. Columns as in db/README.md."""

    batch_id: int
    session_key: str
    revision: int
    session_topic_ids: list[str]
    session_partitions: list[int]
    session_ends: list[int]
    session_outputs: list[int]
    topics: list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[list[Any] | None] | None
    partitions: list[int | None] | None
    timestamps_ms: list[int | None] | None

    @property
    def row_key(self) -> RowKey:
        """The row's primary key."""
        return RowKey(self.batch_id, self.session_key)


class ExtraHeaders(NamedTuple):
    """The headers beside `outbox-id` that the settings ask for. False if there are none."""

    names: tuple[str, ...] = ()
    cloud_events: CloudEvents | None = None

    @classmethod
    def of(cls, settings: PublisherSettings) -> "ExtraHeaders":
        """Read the settings."""
        if not settings.cloudevents:
            return cls(settings.headers)
        source, kind = settings.cloudevents_source, settings.cloudevents_type
        return cls(settings.headers, CloudEvents(source, kind, settings.cloudevents_content_type))

    def __bool__(self) -> bool:
        return bool(self.names) or self.cloud_events is not None


NO_EXTRAS = ExtraHeaders()


class OutputRecord(NamedTuple):
    """One Kafka record; fields in the order of the parameters of `Producer.produce`. `timestamp_ms` SENT_NOW: the time of sending."""

    topic: str
    value: bytes | None
    key: bytes
    partition: int
    timestamp_ms: int
    headers: list[Header]


def value_bytes(row: Row) -> int:
    """Return how many bytes all values of a row have."""
    try:
        return sum(map(len, row.values))  # type: ignore[arg-type]  # several times as fast, and tombstones are rare
    except TypeError:
        return sum([len(value) for value in row.values if value is not None])


def is_plain(row: Row, headers: ExtraHeaders) -> bool:
    """Whether `produce_plain` may send the row: one session, one topic, at most 1,000 outputs, no key, partition or time of their own, and
    no header but `outbox-id`."""
    return (
        row.keys is None
        and row.headers is None
        and row.partitions is None
        and row.timestamps_ms is None
        and not headers
        and row.revision == 0
        and len(row.session_ends) == 1
        and 0 < len(row.values) <= len(_INDEXES)
        and row.topics.count(row.topics[0]) == len(row.topics)
    )


def produce_plain(
    produce: Produce,
    row: Row,
    topic: str,
    marks: Sequence[Header],
    start: int,
    reached: list[int],
    report: DeliveryReport,
) -> None:
    """Send a plain row's records from index `start` on. If `produce` raises, `reached[0]` is the index that it raised at.

    `marks` follow `outbox-id` in every record's headers. Only the first and last record ask for a delivery report: one key goes to one
    partition in order, so these two bound the row's offsets. This is the hot path: for each event nothing is built but its headers.
    """
    values = row.values
    key = row.session_key.encode()
    prefix = f"{row.session_topic_ids[0]}/{row.session_partitions[0]}/{row.session_ends[0]}/".encode()
    last = len(values) - 1
    index = start
    try:
        for index in range(start, last + 1):
            produce(
                topic,
                values[index],
                key,
                ANY_PARTITION,
                report if index == 0 or index == last else None,
                None,
                0,
                [("outbox-id", prefix + _INDEXES[index]), *marks],
            )
    finally:
        reached[0] = index


def records(row: Row, headers: ExtraHeaders = NO_EXTRAS) -> Iterator[OutputRecord]:
    """Yield every record of a row in order.

    Raises ValueError if the sessions' numbers of outputs do not add up, a header cannot be read, or a timestamp cannot be sent.
    """
    if sum(row.session_outputs) != len(row.topics):
        raise ValueError(
            f"its sessions count {sum(row.session_outputs)} outputs, but it holds {len(row.topics)}"
        )
    session_key = row.session_key.encode()
    event = 0
    for topic_id, partition, end, outputs in zip(
        row.session_topic_ids, row.session_partitions, row.session_ends, row.session_outputs, strict=True
    ):
        common: list[Header] = []
        if row.revision > 0:
            common.append(("outbox-revision", b"%d" % row.revision))
        if "batch" in headers.names:
            common.append(("outbox-batch", b"%d" % row.batch_id))
        if "session_key" in headers.names:
            common.append(("outbox-session-key", session_key))
        if "session_outputs" in headers.names:
            common.append(("outbox-session-outputs", b"%d" % outputs))
        for index in range(outputs):
            key = row.keys[event] if row.keys is not None else None
            to_partition = row.partitions[event] if row.partitions is not None else None
            timestamp = row.timestamps_ms[event] if row.timestamps_ms is not None else None
            if timestamp == SENT_NOW:
                raise ValueError(
                    f"output {event} has the timestamp 0 ms, which the Kafka client sends as now"
                )
            own = list(_own_headers(row.headers[event] if row.headers is not None else None))
            outbox_id = f"{topic_id}/{partition}/{end}/{index}"
            value = row.values[event]
            described: list[tuple[str, bytes]] = []
            if headers.cloud_events is not None:
                described = headers.cloud_events.headers(
                    row.topics[event],
                    outbox_id if row.revision == 0 else f"{outbox_id}/{row.revision}",
                    session_key,
                    timestamp,
                    has_data=value is not None,
                )
            yield OutputRecord(
                row.topics[event],
                value,
                session_key if key is None else key,
                ANY_PARTITION if to_partition is None else to_partition,
                SENT_NOW if timestamp is None else timestamp,
                [
                    ("outbox-id", outbox_id.encode()),
                    *common,
                    *_not_own(described, own),
                    *own,
                ],
            )
            event += 1


def _not_own(described: list[tuple[str, bytes]], own: list[Header]) -> list[tuple[str, bytes]]:
    """Return the headers whose names the transform has not set itself."""
    if not described or not own:
        return described
    set_by_transform = {name.lower() for name, _ in own}
    return [header for header in described if header[0] not in set_by_transform]


def _own_headers(stored: object) -> Iterator[Header]:
    """Yield the headers of one output from their stored form, a list of [name, value]."""
    if stored is None:
        return
    if not isinstance(stored, list):
        raise ValueError(f"its headers are not a list of [name, value] but a {type(stored).__name__}")
    for pair in stored:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"a header is not [name, value] but a {type(pair).__name__} of another form")
        yield pair[0], header_values.read(pair[1])


def batch_size(record: OutputRecord) -> int:
    """Return the bytes of an uncompressed record batch (format 2) that holds this record alone.

    A broker compares this size with `max.message.bytes`. Format: KIP-98 and Kafka's protocol guide, "Record Batch".
    """
    body = 1 + 1 + 1  # attributes, and the varints of the timestamp and offset deltas, both 0
    body += _sized(len(record.key)) + _sized(None if record.value is None else len(record.value))
    body += _varint(len(record.headers))
    for name, value in record.headers:
        body += _sized(len(name.encode())) + _sized(None if value is None else len(value))
    return _BATCH_HEADER_BYTES + _sized(body)


_BATCH_HEADER_BYTES = 61


def _sized(length: int | None) -> int:
    return _varint(-1) if length is None else _varint(length) + length


def _varint(number: int) -> int:
    """Return the bytes of a zigzag varint."""
    zigzag = (number << 1) ^ (number >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)
