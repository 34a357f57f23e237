"""What must come out, computed event by event from the input alone: the documented rules, as plainly as they can be.

It shares no code with the services but the transform, its types and the settings. Left out is the rule of silence: it ends sessions
that no end event ever reaches, so it decides which letter such a session gets and when, never what comes out.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from examples.clickstream.reading import KafkaRecord
from service.settings import SessionSettings
from spark_job.api import Event, OutputEvent, Position, Session

Transform = Callable[[Session], Iterable[OutputEvent]]


@dataclass(frozen=True)
class Output:
    """A record that must come out. `outbox_id` is the header it must carry."""

    topic: str
    key: bytes
    value: bytes | None
    outbox_id: str


@dataclass(frozen=True, order=True)
class Letter:
    """A dead letter that must be there, by its identity."""

    reason: str
    topic: str
    partition: int
    first_offset: int


@dataclass
class Expected:
    """Everything that the input calls for; `outputs` in closing order for each key."""

    sessions: int = 0
    outputs: list[Output] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    unfinished: list[Letter] = field(default_factory=list)
    """Sessions without an end: each may be a letter `timed_out` by now, or still be open."""


@dataclass
class _Open:
    """A session under way."""

    events: list[Event]
    ids: set[str]
    greatest: datetime


def expect(
    records: Iterable[KafkaRecord], topic_ids: dict[str, str], settings: SessionSettings, transform: Transform
) -> Expected:
    """Apply the rules to the input's records, given in offset order within each partition.

    `topic_ids` are Kafka's ids by topic name. Reads the key, type, id and time from the JSON fields of the example.
    """
    expected = Expected()
    timeout = timedelta(seconds=settings.timeout_s)
    open_sessions: dict[tuple[str, int, str], _Open] = {}
    for record in records:
        fields = _fields(record)
        if fields is None:
            expected.letters.append(_letter("malformed", record, record.offset))
            continue
        at = datetime.fromisoformat(fields["at"])
        event = Event(fields["event_type"], record.value or b"", at, record.offset)
        where = (record.topic, record.partition, fields["session_key"])
        under_way = open_sessions.get(where)
        if under_way is not None and at > under_way.greatest + timeout:
            expected.letters.append(_letter("timed_out", record, under_way.events[0].offset))
            under_way = open_sessions.pop(where) and None
        if event.type == settings.start:
            if under_way is not None and _repeats(event, fields, under_way):
                continue
            if under_way is not None:
                expected.letters.append(_letter("restarted", record, under_way.events[0].offset))
            open_sessions[where] = _Open([event], {fields["event_id"]}, at)
        elif under_way is None:
            expected.letters.append(_letter("no_start", record, record.offset))
        elif fields["event_id"] not in under_way.ids:
            under_way.events.append(event)
            under_way.ids.add(fields["event_id"])
            under_way.greatest = max(under_way.greatest, at)
            if event.type == settings.end:
                _close(expected, record, where[2], open_sessions.pop(where), topic_ids, transform)
    for (topic, partition, _), left in open_sessions.items():
        expected.unfinished.append(Letter("timed_out", topic, partition, left.events[0].offset))
    return expected


def _fields(record: KafkaRecord) -> dict[str, Any] | None:
    try:
        found = json.loads(record.value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _repeats(event: Event, fields: dict[str, Any], under_way: _Open) -> bool:
    first = under_way.events[0]
    return event.raw == first.raw or fields["event_id"] == first.value["event_id"]


def _close(
    expected: Expected,
    end: KafkaRecord,
    key: str,
    closed: _Open,
    topic_ids: dict[str, str],
    transform: Transform,
) -> None:
    first, last = closed.events[0], closed.events[-1]
    session = Session(
        key=key,
        events=closed.events,
        started_at=first.timestamp,
        ended_at=last.timestamp,
        start=Position(end.topic, end.partition, first.offset),
        end=Position(end.topic, end.partition, last.offset),
    )
    try:
        outputs = list(transform(session))
    except Exception:  # noqa: BLE001 - whatever the transform raises makes the letter
        expected.letters.append(_letter("transform_failed", end, first.offset))
        return
    expected.sessions += 1
    identity = f"{topic_ids[end.topic]}/{end.partition}/{end.offset}"
    expected.outputs.extend(_encoded(outputs, key, identity))


def _encoded(outputs: list[OutputEvent], session_key: str, identity: str) -> Iterator[Output]:
    for index, output in enumerate(outputs):
        key = session_key if output.key is None else output.key
        value = output.value
        yield Output(
            topic=output.topic,
            key=key.encode() if isinstance(key, str) else key,
            value=value if value is None or isinstance(value, bytes) else orjson.dumps(value),
            outbox_id=f"{identity}/{index}",
        )


def _letter(reason: str, record: KafkaRecord, first_offset: int) -> Letter:
    return Letter(reason, record.topic, record.partition, first_offset)
