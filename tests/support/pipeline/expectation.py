"""What must come out of an input topic: its records read back, judged by the reference model, and transformed."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import orjson

from service.kafka.record_headers import headers_of
from service.settings import SessionSettings, Settings
from spark_job import Event, OutputEvent, Session
from spark_job.api import Position, utc
from spark_job.ledger.assembly_rules import applied_rules, stored_rules
from tests.support.pipeline.transforms import RefusedSessionError, twenty
from tests.support.reading import read_to_end
from tests.support.reference.model import ExpectedSession, Record, expected_sessions, is_clock_record


class Output(NamedTuple):
    """An event that must be delivered. `headers` are the transform's own."""

    topic: str
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    outbox_id: str
    revision: int = 0


class Letter(NamedTuple):
    """A dead letter that must be there."""

    reason: str
    partition: int
    first_offset: int
    last_offset: int
    closing_offset: int
    session_key: str | None
    event_count: int
    offsets: tuple[int, ...]
    times_ms: tuple[int, ...]
    values: tuple[bytes | None, ...]
    revision: int = 0


@dataclass
class Expectation:
    """Everything that must come out of an input. `outputs` in closing order for each session key."""

    records: int = 0
    """But for clock records."""
    sessions: int = 0
    duplicates: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """{partition: end offset}"""
    outputs: list[Output] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)

    def __add__(self, later: "Expectation") -> "Expectation":
        """Both, of one input: what one generation dealt with, and what a reissue sent again."""
        assert (self.records, self.ends) == (later.records, later.ends), "expectations of different inputs"
        return replace(
            self,
            sessions=self.sessions + later.sessions,
            outputs=self.outputs + later.outputs,
            letters=self.letters + later.letters,
        )

    def followed_by(self, later: "Expectation") -> "Expectation":
        """Both, of two inputs that were read one after the other."""
        return replace(
            later,
            records=self.records + later.records,
            sessions=self.sessions + later.sessions,
            duplicates=self.duplicates + later.duplicates,
            outputs=self.outputs + later.outputs,
            letters=self.letters + later.letters,
        )


@dataclass(frozen=True)
class Share:
    """The part of an input that one revision deals with: what closes at or above `floor` and below `ceiling` ({partition: offset})."""

    transform: Callable[[Session], Iterable[OutputEvent]] = twenty
    revision: int = 0
    floor: Mapping[int, int] = field(default_factory=dict)
    ceiling: Mapping[int, int] = field(default_factory=dict)

    def has(self, partition: int, closing: int) -> bool:
        """Whether what closes there belongs to it."""
        return self.floor.get(partition, 0) <= closing < self.ceiling.get(partition, sys.maxsize)


WHOLE = Share()


def expect(
    records: Sequence[Record],
    topic: str,
    topic_id: str,
    session: SessionSettings,
    share: Share = WHOLE,
) -> Expectation:
    """Judge the input's records. `source` of a record is its partition."""
    rules = applied_rules(stored_rules(Settings(session=session))).rules
    judged = expected_sessions(records, rules)
    clock_records = sum(map(is_clock_record, records)) if rules.clock_records else 0
    expected = Expectation(records=len(records) - clock_records, duplicates=judged.duplicates)
    for record in records:
        expected.ends[record.source] = max(expected.ends.get(record.source, 0), record.offset + 1)
    for letter in judged.letters:
        if not share.has(letter.source, letter.closing_offset):
            continue
        place = (letter.source, letter.first_offset, letter.last_offset, letter.closing_offset)
        expected.letters.append(
            Letter(
                letter.reason, *place, letter.key, letter.n_events, *_columns(letter.events), share.revision
            )
        )
    for closed in judged.sessions:
        if not share.has(closed.source, closed.closing_offset):
            continue
        try:
            outputs = list(share.transform(_session(closed, topic)))
        except RefusedSessionError:
            expected.letters.append(_failed(closed, share.revision))
            continue
        expected.sessions += 1
        identity = f"{topic_id}/{closed.source}/{closed.end_offset}"
        expected.outputs += [
            _output(output, closed.key, f"{identity}/{index}", share.revision)
            for index, output in enumerate(outputs)
        ]
    return expected


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """Read a topic's committed records, from the first one that it has to its end of now."""
    return [
        Record(
            message.partition() or 0,
            message.offset() or 0,
            message.timestamp()[1],
            message.key(),
            message.value(),
            clock=dict(headers_of(message)).get("outbox-clock"),
        )
        for message in read_to_end(bootstrap, topic)
    ]


def _session(closed: ExpectedSession, topic: str) -> Session:
    return Session(
        key=closed.key,
        events=[Event(event.type, event.raw, event.ts, event.offset) for event in closed.events],
        started_at=utc(closed.events[0].ts),
        ended_at=utc(closed.events[-1].ts),
        start=Position(topic, closed.source, closed.start_offset),
        end=Position(topic, closed.source, closed.end_offset),
        ended_by=closed.ended_by,
        part=closed.part,
    )


def _output(output: OutputEvent, session_key: str, outbox_id: str, revision: int) -> Output:
    key = session_key if output.key is None else output.key
    value = output.value
    return Output(
        topic=output.topic,
        key=key.encode() if isinstance(key, str) else key,
        value=value if value is None or isinstance(value, bytes) else orjson.dumps(value),
        headers=tuple(
            (name, text.encode() if isinstance(text, str) else text) for name, text in output.headers
        ),
        outbox_id=outbox_id,
        revision=revision,
    )


def _failed(closed: ExpectedSession, revision: int) -> Letter:
    return Letter(
        "transform_failed",
        closed.source,
        closed.start_offset,
        closed.last_offset,
        closed.closing_offset,
        closed.key,
        len(closed.events),
        *_columns((event.offset, event.ts, event.raw) for event in closed.events),
        revision,
    )


def _columns(
    events: Iterable[tuple[int, int, bytes | None]],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bytes | None, ...]]:
    kept = list(events)
    return tuple(e[0] for e in kept), tuple(e[1] for e in kept), tuple(e[2] for e in kept)
