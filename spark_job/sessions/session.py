"""From the assembler's columns to the Session a transform sees."""

from collections.abc import Iterator, Sequence
from typing import overload

from spark_job.api import Event, Position, Session, utc
from spark_job.sessions.result import ClosedSession


class SessionEvents(Sequence[Event]):
    """A session's events, made at the first look and then kept. Equal to any list or tuple of equal events."""

    __slots__ = ("_closed", "_events")

    def __init__(self, closed: ClosedSession) -> None:
        self._closed = closed
        self._events: list[Event] | None = None

    def _made(self) -> list[Event]:
        if self._events is None:
            of = self._closed
            self._events = list(map(Event, of.types(), of.raws(), of.timestamps_ms(), of.offsets()))
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


def to_session(closed: ClosedSession, topic: str, partition: int) -> Session:
    """The public session; `topic` and `partition` are where it was read."""
    return Session(
        key=closed.key,
        events=SessionEvents(closed),
        started_at=utc(closed.started_ms),
        ended_at=utc(closed.ended_ms),
        start=Position(topic, partition, closed.start_offset),
        end=Position(topic, partition, closed.end_offset),
    )
