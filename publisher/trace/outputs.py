"""Reads the outputs of a session: the state of each in the outbox, and its position in Kafka."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from contract.positions import OutboxId
from db import windows
from db.statements import queries
from publisher.kafka.topics import Topics
from publisher.outbox.sent_offsets import (
    MalformedOffsetsError,
    TopicOffsets,
    malformed,
    read_topic_offsets,
)
from publisher.trace.input_positions import find_matches
from publisher.trace.records import Copy, OffsetRange, copies, explaining
from service.kafka import client as kafka_client
from service.kafka.reading import NamedPartition
from service.settings import KafkaSettings

_ROWS = queries("publisher", "rows")

OutputKey = tuple[str, int]
"""(outbox-id, revision)"""


class Output(NamedTuple):
    """One output of a session key. `kafka_offsets`: first and last offset of its transaction in the topic; None if unknown; the stored text
    if no publisher wrote it."""

    batch_id: int
    outbox_id: str
    revision: int
    topic: str
    state: str
    delivered_at: datetime | None
    kafka_offsets: TopicOffsets | str | None
    session_key: str
    lane: int
    epoch: int | None
    delivery_seq: int | None

    @property
    def identity(self) -> OutputKey:
        """The identity that is the same in all records of the output, whether a lane or a replay sent them."""
        return self.outbox_id, self.revision

    def ranges(self) -> TopicOffsets:
        """Return the offsets between which to look for the output, {} if they are unknown. Raises MalformedOffsetsError."""
        if isinstance(self.kafka_offsets, str):
            finding = malformed(self.epoch, self.lane, self.delivery_seq, self.kafka_offsets)
            raise MalformedOffsetsError(
                f"{finding}. `publisher trace KEY --scan` reads the whole topics instead"
            )
        return self.kafka_offsets or {}


def outputs_of_key(
    connection: psycopg.Connection[Any],
    session_key: str,
    topic: str | None = None,
    *,
    batch_ids: Sequence[int] | None = None,
    most: int | None = None,
) -> list[Output]:
    """Return each output of a session key, in order; only those of `batch_ids`, and at most `most`. Raises psycopg.Error.

    Searches a few partitions at a time, so `connection` should not be in a transaction.
    """
    wanted = {
        "session_key": session_key,
        "topic": topic,
        "batch_ids": None if batch_ids is None else [*batch_ids],
    }
    found: list[Output] = []
    for window in windows.kept(connection) if batch_ids is None else windows.holding(connection, batch_ids):
        left = None if most is None else most - len(found)
        if left == 0:
            break
        rows = connection.execute(
            _ROWS["outputs_of_key"], wanted | window.bounds | {"rows": left}, prepare=False
        )
        found += [_output(*row) for row in rows]
    return found


def _output(*columns: Any) -> Output:
    stored = Output(*columns)
    return stored._replace(kafka_offsets=read_topic_offsets(columns[6]))


def outputs_of_id(connection: psycopg.Connection[Any], outbox_id: OutboxId) -> list[Output]:
    """Return the outputs with an outbox-id: one for each revision, and for each copy of a row that was parked. Raises psycopg.Error."""
    there = find_matches(connection, outbox_id.end, only_ends=True)
    return [
        output
        for key in there.keys(exact=True)
        for output in outputs_of_key(connection, key)
        if output.outbox_id == str(outbox_id)
    ]


def found_in_kafka(
    kafka: KafkaSettings, outputs: Sequence[Output], *, scan: bool = False
) -> dict[OutputKey, list[Copy]]:
    """Return where Kafka has these outputs. Reads the offsets of their deliveries, or (`scan`) their whole topics.

    Raises UnavailableError, RefusedError, MalformedOffsetsError.
    """
    if not scan:
        for output in outputs:
            output.ranges()
    with explaining(kafka):
        return _found(kafka, outputs, scan=scan)


def _found(kafka: KafkaSettings, outputs: Sequence[Output], *, scan: bool) -> dict[OutputKey, list[Copy]]:
    topics = Topics(kafka_client.admin_client(kafka), timeout_s=kafka.request_timeout_s, create=False)
    names = {output.topic for output in outputs if scan or output.kafka_offsets}
    ends = {name: topics.ends(name, range(topics.partitions(name))) for name in sorted(names)}
    layers = [_whole(ends)] if scan else layered(_recorded(outputs, ends))
    found: dict[OutputKey, list[Copy]] = defaultdict(list)
    for offsets in layers:
        if offsets:
            for copy in copies(kafka, offsets, {output.outbox_id for output in outputs}):
                found[copy.outbox_id, copy.revision].append(copy)
    return found


def _recorded(
    outputs: Iterable[Output], ends: Mapping[str, Mapping[int, int]]
) -> Iterator[tuple[NamedPartition, OffsetRange]]:
    """Yield the offsets of each delivery, as far as the topic has them. A topic that was deleted and created again may be shorter."""
    for output in outputs:
        for partition, (first, last) in output.ranges().items():
            end = ends[output.topic].get(int(partition), 0)
            if first < end:
                yield (output.topic, int(partition)), (first, min(last, end - 1))


def layered(ranges: Iterable[tuple[NamedPartition, OffsetRange]]) -> list[dict[NamedPartition, OffsetRange]]:
    """Return the ranges in as few maps as possible, each with at most one range per partition. Overlapping ranges are merged, so that no
    record is read twice."""
    layers: list[dict[NamedPartition, OffsetRange]] = []
    depth: dict[NamedPartition, int] = defaultdict(int)
    for partition, (first, last) in sorted(set(ranges)):
        newest = depth[partition] - 1
        if newest >= 0 and first <= layers[newest][partition][1]:
            layers[newest][partition] = layers[newest][partition][0], max(last, layers[newest][partition][1])
            continue
        if depth[partition] == len(layers):
            layers.append({})
        layers[depth[partition]][partition] = first, last
        depth[partition] += 1
    return layers


def _whole(ends: Mapping[str, Mapping[int, int]]) -> dict[NamedPartition, OffsetRange]:
    return {
        (name, partition): (0, end - 1)
        for name, partitions in ends.items()
        for partition, end in partitions.items()
        if end > 0
    }


def must_be_in_kafka(output: Output, *, scan: bool) -> bool:
    """Whether the output must be in Kafka within the offsets that were read."""
    return output.state == "delivered" and (scan or output.kafka_offsets is not None)
