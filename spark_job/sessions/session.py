"""Turn the assembler's columns into the Session that a transform sees."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, overload

from service.formats.values import decoded
from service.formats.writer import RegistryAwayError, RegistryRefusedError, Schemas
from spark_job.api import EncodedEvent, Event, Position, Session, event_class, utc
from spark_job.sessions.result import ClosedSession
from spark_job.sessions.settings import Format

Decode = Callable[[bytes], Any]
"""Decodes an event's value."""


class SessionEvents(Sequence[Event]):
    """A session's events, created at the first access and then kept. Equal to any sequence of equal events."""

    __slots__ = ("_closed", "_decode", "_events", "_source")

    def __init__(self, closed: ClosedSession, source: tuple[str, int], decode: Decode | None) -> None:
        """`source`: the topic and partition of its records."""
        self._closed = closed
        self._source = source
        self._decode = decode
        self._events: list[Event] | None = None

    def _made(self) -> list[Event]:
        if self._events is None:
            of = self._closed
            columns = (of.types(), of.raws(), of.timestamps_ms(), of.offsets())
            if self._decode is None:
                self._events = list(map(event_class(Event, *self._source), *columns))
            else:
                self._events = list(
                    map(event_class(EncodedEvent, *self._source), repeat(self._decode), *columns)
                )
        return self._events

    def __len__(self) -> int:
        return self._closed.n_events

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._made()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._made() == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self._made()))

    def __repr__(self) -> str:
        return repr(self._made())


def value_decoder(of: Format, schemas: Schemas) -> Decode | None:
    """Return the decoder of a format's values; None for JSON, which events decode themselves."""
    if of == "json":
        return None
    return _no_value if of == "bytes" else SchemaDecode(schemas)


class SchemaDecode:
    """Decodes values with schemas, and remembers that a registry failed: the transform may have caught the error."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.failed: RegistryAwayError | RegistryRefusedError | None = None

    def __call__(self, raw: bytes) -> Any:
        """Raises as `decoded`."""
        try:
            return decoded(raw, self._schemas)
        except (RegistryAwayError, RegistryRefusedError) as error:
            self.failed = error
            raise


def check_registry(decode: Decode | None) -> None:
    """Raise the failure of a registry that a transform may have caught: no session is at fault, and no output may depend on it."""
    if isinstance(decode, SchemaDecode) and decode.failed is not None:
        raise decode.failed


def _no_value(_raw: bytes) -> Any:
    raise ValueError('[source] format = "bytes": the job does not know how to decode an event; use Event.raw')


def to_session(closed: ClosedSession, topic: str, partition: int, decode: Decode | None = None) -> Session:
    """Return the public session. `topic`, `partition`: where it was read; `decode`: see `value_decoder`."""
    return Session(
        key=closed.key,
        events=SessionEvents(closed, (topic, partition), decode),
        started_at=utc(closed.started_ms),
        ended_at=utc(closed.ended_ms),
        start=Position(topic, partition, closed.start_offset),
        end=Position(topic, partition, closed.end_offset),
        ended_by=closed.ended_by,
        part=closed.part,
    )
