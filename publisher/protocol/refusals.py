"""Decides which rows are parked: those with a record that Kafka refuses for its own content. Any other refusal stops the lane.

Most are detected before anything is sent (delivery/admission.py). A record that only the broker can judge fails its transaction
(delivery/refusal_bisection.py). lane/parking.py parks the rows.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from confluent_kafka import KafkaError

from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import (
    ANY_PARTITION,
    SENT_NOW,
    OutputRecord,
    Row,
    RowKey,
    batch_size,
    value_bytes,
)

# The most bytes of a plain record beside its value: batch and record overhead, a session key of 1 kB, the outbox-id.
_PLAIN_OVERHEAD = 2_048

Reason = Literal["too_large", "invalid", "topic_missing"]
"""`topic_missing` is not a refusal by Kafka but a person's decision (docs/parked.md)."""

RECORD_ERRORS: dict[int, Reason] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too_large",
    KafkaError.RECORD_LIST_TOO_LARGE: "too_large",
    KafkaError.INVALID_RECORD: "invalid",
    KafkaError.INVALID_TIMESTAMP: "invalid",
}
"""Broker errors that concern one record, with the reason for which its row is parked. All other errors concern the lane.

INVALID_TIMESTAMP concerns the row only if the row gives the time; otherwise this host's clock is wrong.
"""


class TopicLimits(NamedTuple):
    """The limits of a topic. `max_bytes`: the largest uncompressed record batch, None if only the broker knows."""

    partitions: int
    max_bytes: int | None


class Refusal(NamedTuple):
    """Why a row is parked."""

    reason: Reason
    detail: str


class RecordRefusedError(Exception):
    """Kafka refused a record for its own content. `rows`: the refused rows, each with the reason; empty if unknown.

    `code`: the Kafka error's code. `sent`: how many rows the transaction held.
    """

    def __init__(self, cause: KafkaError, rows: dict[RowKey, Refusal], sent: int) -> None:
        super().__init__(cause.str())
        self.code = cause.code()
        self.rows = rows
        self.sent = sent


def refusal(
    row: Row, topics: Mapping[str, TopicLimits], client_max_bytes: int, outgoing: Outgoing
) -> Refusal | None:
    """Return why Kafka would refuse the row for its own content, None if it would not.

    `client_max_bytes`: see `clients.client_max_bytes`; `topics` names every topic that the row goes to.
    """
    if outgoing.is_plain(row):
        limit = topics[outgoing.targets.of(row.topics[0])].max_bytes
        least = client_max_bytes if limit is None else min(client_max_bytes, limit)
        if value_bytes(row) + _PLAIN_OVERHEAD <= least:
            return None
    try:
        for index, record in enumerate(outgoing.records(row)):
            found = record_refusal(index, record, topics[record.topic], client_max_bytes)
            if found is not None:
                return found
    except ValueError as error:
        return Refusal("invalid", str(error))
    return None


def no_row_s_fault(code: int, text: str, progress_topic: str) -> str:
    """Return the reason for a refused transaction for which no row is to blame."""
    if code == KafkaError.INVALID_TIMESTAMP:
        return (
            f"Kafka refuses the time of sending: {text}. The clock of this host and the brokers' differ by more than "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topics allow. Set the clock "
            "right; the lane then continues by itself"
        )
    if RECORD_ERRORS[code] == "too_large":
        return (
            f"Kafka refuses the lane's own progress record: {text}. Raise max.message.bytes of topic {progress_topic} "
            "to its default; the lane then continues by itself"
        )
    return (
        f"Kafka refuses the lane's own progress record as invalid: {text}. Compare the settings of topic "
        f"{progress_topic} with those of another compacted topic; the lane continues by itself once it takes records"
    )


def record_refusal(
    index: int, record: OutputRecord, topic: TopicLimits, client_max_bytes: int
) -> Refusal | None:
    """Return why Kafka would refuse one record, the output `index` of its row, None if it would not."""
    where = f"output {index} for topic {record.topic!r}"
    if record.partition != ANY_PARTITION and not 0 <= record.partition < topic.partitions:
        return Refusal(
            "invalid", f"{where} names partition {record.partition}; the topic has {topic.partitions}"
        )
    if record.timestamp_ms < SENT_NOW:
        return Refusal("invalid", f"{where} has the timestamp {record.timestamp_ms} ms, before 1970")
    size = batch_size(record)
    if topic.max_bytes is not None and size > topic.max_bytes:
        return Refusal(
            "too_large",
            f"{where} is {size} bytes with key, headers and batch; the topic's max.message.bytes is {topic.max_bytes}",
        )
    wire = _client_size(record)
    if wire > client_max_bytes:
        return Refusal(
            "too_large",
            f"{where} counts {wire} bytes for the producer; message.max.bytes and queue.buffering.max.kbytes of [kafka.options] allow "
            f"{client_max_bytes}",
        )
    return None


def _client_size(record: OutputRecord) -> int:
    """Return the size that librdkafka compares with `message.max.bytes` (rd_kafka_msg_max_wire_size), or up to eight bytes more per header.

    Every varint is counted at its longest.
    """
    size = 36 + len(record.key) + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + len(name.encode()) + len(value or b"")
    return size
