"""What a transform sees and returns. `from spark_job import Session, Event, OutputEvent`.

    def transform(session: Session) -> Iterable[OutputEvent]:
        yield OutputEvent("pages", {"key": session.key, "events": len(session.events)})

A transform is a pure function of its session: no clock, no random numbers, no other system. It may be called several times for the same
session, after a failure for example; one result is stored, and one more by each reissue. Any exception, SystemExit included, makes its
session a dead letter `transform_failed` with the traceback, or stops the job if `[transform] on_error` is "stop". An output that breaks a
rule of `OutputEvent` does the same. No output of such a session is sent. Errors of the schema registry or of the machine (no memory, for
example) end the attempt instead.

Events and output events are made hundreds of thousands of times a second, so they are plain slotted classes with
read-only properties: about four times cheaper to make than frozen dataclasses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, cast

import orjson

from spark_job import models

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

M = TypeVar("M")
ModelClass: TypeAlias = type[M]

OutputValue: TypeAlias = "bytes | dict[str, Any] | list[Any] | WithSchema | None"
Header = tuple[str, bytes | str]
EndedBy = Literal["end", "timeout", "limit", "restart"]


def utc(epoch_ms: int) -> datetime:
    """An epoch time in milliseconds as a UTC datetime, exactly."""
    return _EPOCH + epoch_ms * _MILLISECOND


class Event:
    """One event of a session. Read-only. The record's key and headers are not part of it."""

    __slots__ = ("_offset", "_raw", "_timestamp", "_type", "_value")

    _source: ClassVar[str] = ""
    """`topic/partition` of the record; see `event_class`."""

    def __init__(self, type: str, raw: bytes, timestamp: datetime | int, offset: int) -> None:
        """`raw` is the record's value, in JSON an object in UTF-8; `timestamp` a UTC datetime or epoch milliseconds."""
        self._type = type
        self._raw = raw
        self._timestamp = timestamp
        self._offset = offset
        self._value: dict[str, Any] | None = None

    @classmethod
    def of(cls, type: str, value: dict[str, Any], timestamp: datetime | int = 0, offset: int = 0) -> "Event":
        """Return an event with this decoded value: for tests of transforms.

        Raises TypeError when the value cannot be written as JSON.
        """
        return cls(type, orjson.dumps(value), timestamp, offset)

    def as_(self, model: ModelClass[M]) -> M:
        """Return the value as a pydantic model or a dataclass, validated by pydantic. Each call creates a new object.

        Raises EventError that names the record and each wrong field, TypeError if `model` is no such class, and ValueError as `value` does.
        """
        place = f"{self._source} offset {self._offset}".lstrip()
        return models.read(model, self._document(), f"{self._type} at {place}")

    def _document(self) -> bytes | dict[str, Any]:
        """Return what `as_` reads: the JSON text, because pydantic is stricter with decoded values, for example with times."""
        return self._raw

    @property
    def type(self) -> str:
        """The event's type, unchanged."""
        return self._type

    @property
    def value(self) -> dict[str, Any]:
        """The decoded value. The first access decodes it; later ones return the same object. Do not change it.

        docs/formats.md describes the values of Avro, Protobuf and JSON Schema. With `[source] format = "bytes"` use `raw`.

        Raises ValueError if the format is "bytes", or if `raw` is not JSON. The latter happens only for events made
        by hand and for numbers beyond a 64-bit float (docs/sessions.md): other records that are not JSON are dead letters `malformed`.
        """
        if self._value is None:
            self._value = orjson.loads(self._raw)
        return self._value

    @property
    def raw(self) -> bytes:
        """The record's value, byte for byte. If its schema's id came in a header, the id precedes it."""
        return self._raw

    @property
    def timestamp(self) -> datetime:
        """The event's time in UTC, to the millisecond: the record's timestamp, or the field that `[session] time` names."""
        if isinstance(self._timestamp, int):
            self._timestamp = utc(self._timestamp)
        return self._timestamp

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        return self._offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Event({self.type!r}, {self.raw!r}, {self.timestamp.isoformat()}, offset={self.offset})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as a plain event: pickle cannot import a class that `event_class` has made."""
        return Event, (self._type, self._raw, self._timestamp, self._offset)

    def _identity(self) -> tuple[str, bytes, datetime, int]:
        return self._type, self._raw, self.timestamp, self._offset


class EncodedEvent(Event):
    """An event whose value is not plain JSON."""

    __slots__ = ("_decode",)

    def __init__(
        self,
        decode: Callable[[bytes], Any],
        type: str,
        raw: bytes,
        timestamp: datetime | int,
        offset: int,
    ) -> None:
        """`decode` turns `raw` into the value."""
        super().__init__(type, raw, timestamp, offset)
        self._decode = decode

    @property
    def value(self) -> dict[str, Any]:
        """See Event."""
        if self._value is None:
            self._value = self._decode(self._raw)
        return cast("dict[str, Any]", self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as a plain event, with its decoder."""
        return EncodedEvent, (self._decode, self._type, self._raw, self._timestamp, self._offset)

    def _document(self) -> bytes | dict[str, Any]:
        return self.value


E = TypeVar("E", bound=Event)


@cache
def event_class(kind: type[E], topic: str, partition: int) -> type[E]:
    """Return a class for the events of one partition: the class has the partition's name, so that no event stores it."""
    return type(kind.__name__, (kind,), {"__slots__": (), "_source": f"{topic}/{partition}"})


class Position(NamedTuple):
    """A record's place in the input. `topic` is the topic's name."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Session:
    """A session, or one part of it: all its events in one partition.

    It has at most `[session] max_events` events (default 10,000) with at most `max_bytes` of values (16 MB). A longer session comes
    in parts if it can (`part`); otherwise it is a dead letter `too_large`, which no transform sees.
    """

    key: str
    """The session key: 1 to 1,024 bytes of UTF-8, without NUL."""
    events: Sequence[Event]
    """In offset order, duplicates dropped. Created at the first access."""
    started_at: datetime
    """The first event's time, UTC."""
    ended_at: datetime
    """The last event's time, UTC."""
    start: Position
    """Of the first event."""
    end: Position
    """Of the last event; with the key it identifies the session."""
    ended_by: EndedBy = "end"
    """What ended it: its `end` event, a `timeout` (`[session] on_timeout = "emit"`), or the `limit` if another part follows. Only
    `spark-job dead-letters retry --incomplete` passes sessions that another start ended (`restart`)."""
    part: int = 1
    """Number of the part. Above 1 only if neither a start nor an end event is configured and the session exceeded a limit."""

    def of(self, type: str) -> list[Event]:
        """Return the events of a type, in their order."""
        return [event for event in self.events if event.type == type]

    def first(self, type: str) -> Event | None:
        """Return the first event of a type; None if there is none."""
        return next((event for event in self.events if event.type == type), None)

    def last(self, type: str) -> Event | None:
        """Return the last event of a type; None if there is none."""
        return next((event for event in reversed(self.events) if event.type == type), None)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The schema by which an output's value is encoded. Make one for each kind of output, once, in the module."""

    format: Literal["avro", "protobuf", "json-schema"]
    definition: Any
    """For Avro and JSON Schema the schema as text; for Protobuf the message's generated class."""


class WithSchema:
    """A value that is encoded by a schema, in Confluent's wire format. Read-only."""

    __slots__ = ("schema", "value")

    def __init__(self, value: Any, schema: OutputSchema) -> None:
        """`value`: what the schema describes; for Protobuf a message."""
        self.value = value
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WithSchema):
            return NotImplemented
        return self.value == other.value and self.schema == other.schema

    __hash__ = None  # type: ignore[assignment] # its value may be a dict

    def __repr__(self) -> str:
        return f"WithSchema({self.value!r}, {self.schema.format})"


class OutputEvent:
    """One event to be sent. Read-only.

    The rules below are checked when the session's outputs are encoded, not here: an output that breaks one fails its whole session (see
    the module). All outputs of a session together, with topics, keys and headers, may have `[job] max_row_bytes` (default 64 MB).

    Only the publisher learns what the topic accepts. A topic that does not exist stops the lane until it is created. A record larger than
    the topic's `max.message.bytes`, or for a partition that the topic does not have, is parked with all outputs of its row.
    """

    __slots__ = ("_headers", "_key", "_partition", "_timestamp", "_topic", "_value")

    def __init__(
        self,
        topic: str,
        value: OutputValue,
        key: str | bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        """Check nothing and raise nothing: each property states its rules, and the class when they are checked."""
        self._topic = topic
        self._value = value
        self._key = key
        self._headers = headers
        self._partition = partition
        self._timestamp = timestamp

    @property
    def topic(self) -> str:
        """The topic to send to: 1 to 249 of the characters A-Z a-z 0-9 . _ -, and neither "." nor ".."."""
        return self._topic

    @property
    def value(self) -> OutputValue:
        """bytes are sent unchanged, a dict or list as JSON (what orjson can write), WithSchema in the wire format, None as a tombstone."""
        return self._value

    @property
    def key(self) -> str | bytes | None:
        """str (sent as UTF-8) or bytes. None: the session's key."""
        return self._key

    @property
    def headers(self) -> Sequence[Header]:
        """(name, value) in the order in which they are sent; text values are sent as UTF-8.

        A name must not be empty, contain NUL, or begin with "outbox-".
        """
        return self._headers

    @property
    def partition(self) -> int | None:
        """From 0 to 2**31 - 1. None: chosen by the key, as Java's default partitioner does it."""
        return self._partition

    @property
    def timestamp(self) -> datetime | None:
        """A datetime with a time zone, 1970 or later; rounded to the millisecond. None: the time of sending."""
        return self._timestamp

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutputEvent):
            return NotImplemented
        return self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment] # its value may be a dict

    def __repr__(self) -> str:
        return f"OutputEvent({self._topic!r}, {self._value!r}, key={self._key!r})"

    def _identity(self) -> tuple[object, ...]:
        return self._topic, self._value, self._key, tuple(self._headers), self._partition, self._timestamp


class OutputColumns(NamedTuple):
    """Output events as columns, one entry for each event: the encoder reads some hundred thousand a second."""

    topics: list[str]
    values: list[OutputValue]
    keys: list[str | bytes | None]
    headers: list[Sequence[Header]]
    partitions: list[int | None]
    timestamps: list[datetime | None]

    @classmethod
    def of(cls, events: Sequence[OutputEvent]) -> "OutputColumns":
        """Return events as columns. Reads private attributes: the properties would cost as much as the rest of the encoding."""
        return cls(
            [event._topic for event in events],
            [event._value for event in events],
            [event._key for event in events],
            [event._headers for event in events],
            [event._partition for event in events],
            [event._timestamp for event in events],
        )
