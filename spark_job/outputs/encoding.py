"""Check what a transform returns, and encode it as elements of the outbox's arrays."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, cast

import orjson

from contract import header_values
from contract.output_topics import OutputTopics
from spark_job.api import OutputColumns, OutputEvent, WithSchema
from spark_job.outputs import pgcopy
from spark_job.outputs.trace_context import NO_CONTEXT, TraceContext, missing

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MAX_PARTITION = 2**31 - 1


class EncodedOutputs(NamedTuple):
    """The outputs of one session as array elements; None for an array in which every event has the default."""

    events: int
    topics: bytes
    values: bytes
    keys: bytes | None
    headers: bytes | None
    partitions: bytes | None
    timestamps: bytes | None

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return sum([len(part) for part in self[1:] if part is not None])

    @property
    def value_bytes(self) -> int:
        """Bytes of the events' values alone: as encoded, each has its length in four bytes before it."""
        return len(self.values) - 4 * self.events


class InvalidOutputError(Exception):
    """A transform returned something that cannot be stored or sent."""


EncodeValue = Callable[[str, WithSchema], bytes]
"""(topic, value) -> what is sent. Raises ValueError if the value does not fit its schema."""


_ANY_TOPIC = OutputTopics()


def encode(
    events: Iterable[OutputEvent],
    max_bytes: int,
    encode_value: EncodeValue | None = None,
    context: TraceContext = NO_CONTEXT,
    allowed: OutputTopics = _ANY_TOPIC,
) -> EncodedOutputs:
    """Encode the outputs of one session in their order.

    `encode_value`: for values with schemas; None: there is no registry. `context`: headers to add to outputs (`trace_context.missing`).
    `allowed`: the topics that outputs may go to.

    Raises InvalidOutputError that says what is wrong with which output (by index), or that all together are too large. Also raises errors
    of `encode_value` other than ValueError.
    """
    events = list(events)
    if not all(issubclass(kind, OutputEvent) for kind in set(map(type, events))):
        # Every attempt must name the same event: a letter's text must not depend on the order of a set.
        index = next(number for number, event in enumerate(events) if not isinstance(event, OutputEvent))
        raise InvalidOutputError(f"output {index} is {type(events[index]).__name__}, not OutputEvent")
    columns = OutputColumns.of(events)
    encoded = EncodedOutputs(
        events=len(events),
        topics=_topics(columns.topics, allowed),
        values=_values(columns.values, columns.topics, encode_value),
        keys=_optional(columns.keys, _key, pgcopy.nullable),
        headers=_all_headers(columns.headers, context),
        partitions=_optional(columns.partitions, _partition, _nullable_int4),
        timestamps=_optional(columns.timestamps, _timestamp, _nullable_int8),
    )
    if encoded.size > max_bytes:
        raise InvalidOutputError(
            f"{len(events)} outputs have {encoded.size} bytes, more than [job] max_row_bytes = {max_bytes}"
        )
    return encoded


def _topics(topics: Sequence[str], allowed: OutputTopics) -> bytes:
    """Encode the topics. If all outputs go to one topic, as most do, it is checked once."""
    if topics and topics.count(topics[0]) == len(topics):
        return _topic(topics[0], 0, allowed) * len(topics)
    return b"".join([_topic(topic, index, allowed) for index, topic in enumerate(topics)])


def _values(values: Sequence[object], topics: Sequence[str], encode_value: EncodeValue | None) -> bytes:
    """Encode the values. `bytes` values need no per-value check."""
    kinds = set(map(type, values))
    if kinds <= {bytes}:
        return pgcopy.all_data(cast("Sequence[bytes]", values))
    if WithSchema in kinds:
        values = [
            _with_schema(topics[index], value, index, encode_value)
            if isinstance(value, WithSchema)
            else value
            for index, value in enumerate(values)
        ]
    return b"".join([pgcopy.nullable(_value(value, index)) for index, value in enumerate(values)])


def _with_schema(topic: str, value: WithSchema, index: int, encode_value: EncodeValue | None) -> bytes:
    if encode_value is None:
        raise InvalidOutputError(f"output {index}: a value with a schema needs [schema_registry] url")
    try:
        return encode_value(topic, value)
    except ValueError as error:
        raise InvalidOutputError(f"output {index}: {error}") from error


def _optional(
    values: list[Any],
    check: Callable[[Any, int], Any],
    encode_one: Callable[[Any], bytes],
) -> bytes | None:
    """Encode an array; None if every event has the default. That is nearly always so, and one count shows it."""
    if values.count(None) == len(values):
        return None
    return b"".join([encode_one(check(value, index)) for index, value in enumerate(values)])


def _nullable_int4(value: int | None) -> bytes:
    return pgcopy.int4s([value])


def _nullable_int8(value: int | None) -> bytes:
    return pgcopy.int8s([value])


_known_topics: dict[str, bytes] = {}


def _topic(topic: str, index: int, allowed: OutputTopics) -> bytes:
    encoded = _known_topics.get(topic)
    if encoded is None:
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidOutputError(
                f"output {index}: {topic!r} is not a topic name (1 to 249 of A-Z a-z 0-9 . _ -)"
            )
        if len(_known_topics) > 10_000:
            _known_topics.clear()
        encoded = _known_topics[topic] = pgcopy.data(topic.encode())
    refusal = allowed.refusal(topic)
    if refusal is not None:
        raise InvalidOutputError(f"output {index}: {refusal}")
    return encoded


def _value(value: object, index: int) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, dict | list):
        try:
            return orjson.dumps(value)
        except TypeError as error:
            raise InvalidOutputError(
                f"output {index}: its value cannot be written as JSON: {error}"
            ) from error
    raise InvalidOutputError(
        f"output {index}: its value is {type(value).__name__}, not bytes, a JSON object or array, or None"
    )


def _key(key: object, index: int) -> bytes | None:
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise InvalidOutputError(f"output {index}: its key is not valid Unicode: {error}") from error
    raise InvalidOutputError(f"output {index}: its key is {type(key).__name__}, not str, bytes or None")


def _all_headers(headers: Sequence[Sequence[tuple[str, object]]], context: TraceContext) -> bytes | None:
    if not context:
        return _optional([each or None for each in headers], _headers, pgcopy.jsonb)
    if headers and not any(headers):
        # No output has headers of its own, as nearly always: the context is encoded once.
        return pgcopy.jsonb(_headers((), 0, context)) * len(headers)
    return _optional([each or () for each in headers], partial(_headers, context=context), pgcopy.jsonb)


def _headers(
    headers: Sequence[tuple[str, object]] | None, index: int, context: TraceContext = NO_CONTEXT
) -> bytes | None:
    if headers is None:
        return None
    encoded: list[tuple[str, object]] = []
    for header in headers:
        if not (isinstance(header, tuple | list) and len(header) == 2 and isinstance(header[0], str)):
            raise InvalidOutputError(f"output {index}: header {header!r} is not (name, value)")
        name, value = header
        if not name or "\0" in name or name.startswith("outbox-"):
            raise InvalidOutputError(
                f"output {index}: header name {name!r} is empty, has a NUL or starts with outbox-"
            )
        encoded.append((name, _header_value(value, name, index)))
    if context:
        encoded += missing(context, [name for name, _ in encoded])
    try:
        return orjson.dumps(encoded)
    except TypeError as error:
        raise InvalidOutputError(f"output {index}: its headers are not valid Unicode: {error}") from error


def _header_value(value: object, name: str, index: int) -> object:
    if value is None or (isinstance(value, str) and "\0" not in value):
        return value
    raw = value.encode() if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        raise InvalidOutputError(
            f"output {index}: header {name!r} is {type(value).__name__}, not bytes or str"
        )
    return header_values.stored(raw)


def _partition(partition: object, index: int) -> int | None:
    if partition is None or (type(partition) is int and 0 <= partition <= _MAX_PARTITION):
        return partition
    raise InvalidOutputError(
        f"output {index}: partition {partition!r} is not a number from 0 to {_MAX_PARTITION}"
    )


def _timestamp(timestamp: object, index: int) -> int | None:
    if timestamp is None:
        return None
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        raise InvalidOutputError(
            f"output {index}: timestamp {timestamp!r} is not a datetime with a time zone"
        )
    milliseconds = round(timestamp.timestamp() * 1000)
    if milliseconds < 0:
        raise InvalidOutputError(f"output {index}: timestamp {timestamp} is before 1970")
    return milliseconds
