"""What a transform sees and returns. `from spark_job import Session, Event, OutputEvent`.

    def transform(session: Session) -> Iterable[OutputEvent]:
        yield OutputEvent("pages", {"key": session.key, "events": len(session.events)})

Events and output events are made hundreds of thousands of times a second, so they are plain slotted classes with
read-only properties: about four times cheaper to make than frozen dataclasses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

OutputValue = bytes | dict[str, Any] | list[Any] | None
Header = tuple[str, bytes | str]


def utc(epoch_ms: int) -> datetime:
    """An epoch time in milliseconds as a UTC datetime, exactly."""
    return _EPOCH + epoch_ms * _MILLISECOND


class Event:
    """One event of a session. Read-only."""

    __slots__ = ("_offset", "_raw", "_timestamp", "_type", "_value")

    def __init__(self, type: str, raw: bytes, timestamp: datetime | int, offset: int) -> None:
        """`raw` is the record's value; `timestamp` a UTC datetime or epoch milliseconds."""
        self._type = type
        self._raw = raw
        self._timestamp = timestamp
        self._offset = offset
        self._value: dict[str, Any] | None = None

    @classmethod
    def of(cls, type: str, value: dict[str, Any], timestamp: datetime | int = 0, offset: int = 0) -> "Event":
        """An event with the given decoded value: for tests of transforms."""
        return cls(type, orjson.dumps(value), timestamp, offset)

    @property
    def type(self) -> str:
        """The event's type, one of the three names in the settings."""
        return self._type

    @property
    def value(self) -> dict[str, Any]:
        """The decoded JSON object: decoded when first asked for, then the same object. Do not change it."""
        if self._value is None:
            self._value = orjson.loads(self._raw)
        return self._value

    @property
    def raw(self) -> bytes:
        """The record's value, the exact bytes."""
        return self._raw

    @property
    def timestamp(self) -> datetime:
        """The event's time in UTC: the record's timestamp, or the configured field."""
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

    def _identity(self) -> tuple[str, bytes, datetime, int]:
        return self._type, self._raw, self.timestamp, self._offset


class Position(NamedTuple):
    """A record's place in the input. `topic` is the topic's name."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Session:
    """A whole session: from its start event to its end event, in one partition."""

    key: str
    events: Sequence[Event]
    """In offset order, duplicates dropped. Made when first looked at."""
    started_at: datetime
    """The start event's time, UTC."""
    ended_at: datetime
    """The end event's time, UTC."""
    start: Position
    """Of the start event."""
    end: Position
    """Of the end event; with the key it identifies the session."""


class OutputEvent:
    """One event to be sent. Read-only."""

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
        """What is refused is refused when the batch is written: see `spark_job` on failed transforms."""
        self._topic = topic
        self._value = value
        self._key = key
        self._headers = headers
        self._partition = partition
        self._timestamp = timestamp

    @property
    def topic(self) -> str:
        """The topic to send to."""
        return self._topic

    @property
    def value(self) -> OutputValue:
        """bytes go out exactly as they are, a dict or list as JSON, None as a tombstone."""
        return self._value

    @property
    def key(self) -> str | bytes | None:
        """None: the session's key."""
        return self._key

    @property
    def headers(self) -> Sequence[Header]:
        """Names and values, in order; text values go out as UTF-8."""
        return self._headers

    @property
    def partition(self) -> int | None:
        """None: chosen by the key."""
        return self._partition

    @property
    def timestamp(self) -> datetime | None:
        """Must know its offset from UTC. None: the time of sending."""
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
