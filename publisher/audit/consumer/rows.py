"""Reads a consumer's rows in the form in which the audit compares them.

The tables belong to the consumer, and a column of SQLite holds anything. A row that cannot be read is a finding, and the audit continues.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from contract.positions import OutboxId, RecordPosition, parse_position
from outbox_consumer.reading import ConsumerPosition, ConsumerTables
from publisher.audit.consumer.compare import CONSUMED, ONCE, RETRIED, SET_ASIDE, UNKNOWN, Remembered
from publisher.audit.readback.digest import NONE, identity_of, partition_number
from publisher.audit.readback.state import AuditState

Unreadable = Callable[[str], None]
"""Called with the table and the content of each row that cannot be read."""


class ConsumerRow(NamedTuple):
    """An output that a consumer remembers, packed with CONSUMED. `session`: the position that decides its bucket."""

    session: bytes
    packed: bytes


def remembered(
    tables: ConsumerTables, consumer: str, state: AuditState, unreadable: Unreadable
) -> Iterator[ConsumerRow]:
    """Yield the outputs that a consumer has consumed or set aside."""
    topics = {name: number for number, name in enumerate(state.topics)}
    numbers = _numbers(state)
    for row in tables.consumed(consumer):
        text = f"{row.source}/{row.end_offset}/{row.output}"
        kind = RETRIED if row.retried else ONCE
        topic = topics.get(f"{row.topic}", UNKNOWN)
        found = _stored(text, numbers, row.revision, topic, row.partition, row.offset, row.at_us, kind)
        if found is None:
            unreadable(f"outbox_consumer_seen: {row._asdict()}")
        else:
            yield found
    for outbox_id, revision, name, partition, offset in tables.set_aside(consumer):
        topic = topics.get(f"{name}", UNKNOWN)
        found = _stored(f"{outbox_id}", numbers, revision, topic, partition, offset, 0, SET_ASIDE)
        if found is None:
            where = f"topic {name!r}, partition {partition!r}, offset {offset!r}"
            unreadable(f"outbox_consumer_letter: {where}: outbox_id {outbox_id!r}, revision {revision!r}")
        else:
            yield found


def forgotten(
    tables: ConsumerTables, consumer: str, state: AuditState, unreadable: Unreadable
) -> dict[int, int]:
    """Return {input partition: end of the last session with outputs that a consumer has forgotten}."""
    numbers = _numbers(state)
    found = {}
    for source, end in tables.forgotten(consumer):
        position = _parsed(f"{source}/{end}")
        if isinstance(position, RecordPosition):
            found[_input_partition(position, numbers)] = position.offset
        else:
            unreadable(f"outbox_consumer_forgotten: source {source!r}, end_offset {end!r}")
    return found


def is_readable(position: ConsumerPosition) -> bool:
    """Whether the partition and the offsets are numbers."""
    numbers: tuple[Any, ...] = (position.partition, position.first_offset, position.next_offset)
    return all(isinstance(number, int) for number in numbers)


def _stored(
    text: str,
    numbers: Mapping[str, int],
    revision: int,
    topic: int,
    partition: int,
    offset: int,
    at_us: int,
    kind: int,
) -> ConsumerRow | None:
    """Return the row of an output that was consumed or set aside; None if `text` is not an outbox-id, or a value does not fit."""
    outbox_id = _parsed(text)
    if not isinstance(outbox_id, OutboxId):
        return None
    try:
        found = Remembered(
            identity_of(f"{outbox_id}".encode(), revision),
            _input_partition(outbox_id.end, numbers),
            outbox_id.end_offset,
            outbox_id.output,
            revision,
            topic,
            partition,
            offset,
            at_us,
            kind,
        )
        return ConsumerRow(f"{outbox_id.end}".encode(), CONSUMED.pack(*found))
    except (struct.error, TypeError, UnicodeEncodeError):
        return None


def _parsed(text: str) -> OutboxId | RecordPosition | None:
    try:
        found = parse_position(text)
    except ValueError:
        return None
    position = found.end if isinstance(found, OutboxId) else found
    return found if position.is_possible else None


def _numbers(state: AuditState) -> dict[str, int]:
    return {topic_id: number for number, topic_id in enumerate(state.inputs)}


def _input_partition(position: RecordPosition, numbers: Mapping[str, int]) -> int:
    number = numbers.get(position.topic)
    return NONE if number is None else partition_number(number, position.partition)
