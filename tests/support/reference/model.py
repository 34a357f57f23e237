"""What must come out of a log of session events: one record at a time, dicts and loops, nothing clever.

    expected = expected_sessions(records, settings)

Written from docs/sessions.md, not from the assembler; it shares only the settings with it. Use it as the truth wherever
the input is known: a record is a plain Kafka record with a number for its topic and partition. Where the input is cut
into batches and when things happened plays no part in it.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from spark_job.api import EndedBy
from spark_job.sessions.partition_limits import MAX_TOMBSTONES_BYTES
from spark_job.sessions.settings import RULES_VERSION, AssemblySettings

MAX_KEY_BYTES = 1024
_COMMON_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?[0-5]\d)?")
_EXTENDED_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d(?::\d\d)?)?)?"
)
_BASIC_TIME = re.compile(
    r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(?:(\d\d)(?:[.,](\d{1,9}))?)?(Z|[+-]\d\d(?:\d\d(?:\d\d)?)?)?"
)


@dataclass(frozen=True)
class Record:
    """A record of the input topic. `ts` is its timestamp in epoch milliseconds."""

    source: int
    offset: int
    ts: int
    key: str | bytes | None
    """The record's key, or the header that names the session; not looked at where the key is a JSON field."""
    value: bytes | None
    type: str | bytes | None = None
    """Out of a header, for `type_path=None`."""
    event_id: str | bytes | None = None
    """Out of a header, for `event_ids_in_header`."""
    schema_id: bytes | None = None
    """Out of a header, for values whose schema's id is not in front of them."""
    traceparent: bytes | None = None
    """A header that no session depends on."""
    by_broker: bool = False
    """The broker has set `ts`."""
    clock: bytes | None = None
    """Out of the header `outbox-clock`."""


@dataclass(frozen=True)
class ExpectedEvent:
    """An event as the transform sees it: `ts` in epoch milliseconds."""

    offset: int
    ts: int
    type: str
    raw: bytes


@dataclass(frozen=True)
class ExpectedSession:
    """A session that must reach the transform, once."""

    source: int
    key: str
    start_offset: int
    end_offset: int
    """Of the last of its events."""
    last_offset: int
    """The same with the duplicates that were dropped."""
    closing_offset: int
    ended_by: EndedBy
    part: int
    events: tuple[ExpectedEvent, ...]


@dataclass(frozen=True)
class ExpectedLetter:
    """A dead letter. `events` are (offset, ts, value) up to the limits, `n_events` counts the one over them too."""

    source: int
    first_offset: int
    last_offset: int
    closing_offset: int
    reason: str
    key: str | None
    events: tuple[tuple[int, int, bytes | None], ...]
    n_events: int


@dataclass
class OpenSession:
    """A session whose end has not been seen, or the tombstone of one over the limits."""

    source: int
    key: str
    start_offset: int
    last_offset: int
    latest: int
    first: ExpectedEvent
    first_id: str | None
    events: list[ExpectedEvent] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    tombstone: bool = False
    part: int = 1
    began_with_start: bool = True
    dropped: bool = False
    """Some of its events were duplicates."""
    repeated: int = -1
    """Offset of the newest start that was dropped or swallowed, or of any event where any opens a session."""


@dataclass
class Expected:
    """Everything that must come out. Sorted by source and closing position."""

    sessions: list[ExpectedSession] = field(default_factory=list)
    letters: list[ExpectedLetter] = field(default_factory=list)
    open: list[OpenSession] = field(default_factory=list)
    duplicates: int = 0
    swallowed: int = 0


@dataclass(frozen=True)
class _Parsed:
    key: str
    event: ExpectedEvent
    event_id: str | None


@dataclass(frozen=True)
class _Tick:
    """What a well-formed record says of the time."""

    offset: int
    key: str
    ts: int
    by_broker: bool


def expected_sessions(
    records: Iterable[Record],
    settings: AssemblySettings | Callable[[Record], AssemblySettings],
    event_ids_in_header: bool = False,
    held: tuple[int, Iterable[OpenSession]] = (0, ()),
) -> Expected:
    """Judge every record in offset order within its source. `settings`: also as a function, where they changed on the way.

    `held`: an offset, and what is known to be open there whatever the records say. Tombstones are there from then on: what they swallow
    is gone. Later parts begin where they began: the events of their keys below are those of earlier parts.
    """
    expected = Expected()
    open_now: dict[tuple[int, str], OpenSession] = {}
    clocks: dict[int, list[_Tick]] = {}
    ordered = sorted(records, key=lambda record: (record.source, record.offset))
    tombstones = {(each.source, each.key): replace(each) for each in held[1] if each.tombstone}
    later_parts = {(each.source, each.key): each for each in held[1] if not each.tombstone}
    rules: dict[int, int] = {}
    for record in ordered:
        if record.offset >= held[0]:
            open_now |= tombstones
            tombstones, later_parts = {}, {}
        judge = settings if isinstance(settings, AssemblySettings) else settings(record)
        if judge.rules_version >= 2 > rules.get(record.source, 2):
            for session in open_now.values():
                if session.source == record.source and (session.dropped or session.tombstone):
                    session.repeated = (
                        session.last_offset
                    )  # older rules did not say where: there, at the latest
        rules[record.source] = judge.rules_version
        if judge.clock_records and is_clock_record(record):
            ticks = clocks.setdefault(record.source, [])
            ticks.append(
                _Tick(record.offset, f"clock record \0 {record.offset}", record.ts, record.by_broker)
            )
            _silence(expected, open_now, record.source, ticks, judge)
            continue
        parsed = parse(record, judge, event_ids_in_header)
        if parsed is None:
            alone = ((record.offset, record.ts, record.value),)
            key = _key_of_malformed(record, judge)
            _letter(
                expected,
                record.source,
                (record.offset, record.offset, record.offset),
                "malformed",
                key,
                alone,
                1,
            )
            continue
        ticks = clocks.setdefault(record.source, [])
        by_broker = record.by_broker and judge.rules_version >= 2
        at = min(parsed.event.ts, record.ts) if by_broker else parsed.event.ts
        if judge.rules_version >= 3 and judge.time_path is not None:
            by_broker = False  # its producer chooses that time, up to the broker's
        ticks.append(_Tick(record.offset, parsed.key, at, by_broker))
        _silence(expected, open_now, record.source, ticks, judge)
        if judge.rules_version < 2:
            ticks.clear()  # nothing that older rules read agrees with what newer ones do
        part = later_parts.get((record.source, parsed.key))
        if part is None or record.offset >= part.start_offset:
            if part is not None:
                _begin_part(open_now, record, parsed, part.part, part.latest)
                del later_parts[record.source, parsed.key]
            _judge(expected, open_now, record, parsed, judge)
        _end_oldest(expected, open_now, record, judge)
    open_now |= tombstones
    expected.sessions.sort(key=lambda session: (session.source, session.end_offset))
    expected.letters.sort(
        key=lambda letter: (letter.source, letter.closing_offset, letter.first_offset, letter.reason)
    )
    expected.open = sorted(open_now.values(), key=lambda session: (session.source, session.start_offset))
    return expected


def is_clock_record(record: Record) -> bool:
    """No event: it says what time it is, as one record of a key that no other record has."""
    in_range = -62_135_596_800_000 <= record.ts <= 253_402_300_799_999
    return record.clock == b"1" and record.value is None and in_range


def _silence(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    source: int,
    ticks: list[_Tick],
    settings: AssemblySettings,
) -> None:
    """Sessions of other keys in the same source that the newest record shows to have fallen silent."""
    tick = ticks[-1]
    other = next((each for each in reversed(ticks) if each.key != tick.key), None)
    for session in list(open_now.values()):
        if session.source != source or session.key == tick.key:
            continue
        late = session.latest + settings.timeout_ms + settings.grace_ms
        alone = settings.rules_version < 2 or tick.by_broker
        agrees = other is not None and other.offset > session.last_offset and other.ts > late
        if tick.ts > late and (alone or agrees):
            _time_out(expected, open_now, session, tick.offset, settings)


def _end_oldest(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    record: Record,
    settings: AssemblySettings,
) -> None:
    """Where a partition's open sessions are over a limit: the oldest end until a sixty-fourth of it is free, and until none of
    them had its start repeated behind the start of one that stays. Tombstones are forgotten.
    """
    mine = sorted(
        (each for each in open_now.values() if each.source == record.source),
        key=lambda each: each.start_offset,
    )

    def sizes() -> tuple[int, int]:
        return sum(map(_held, mine)), sum(
            160 + len(each.key.encode()) for each in mine if each.tombstone or each.part > 1
        )

    most = settings.max_open_bytes
    if most is None:
        return
    if not settings.start:
        _bury_oldest(expected, open_now, record, mine, most)
        return
    over = [
        (which, limit) for which, limit in enumerate((most, MAX_TOMBSTONES_BYTES)) if sizes()[which] > limit
    ]
    repeated = -1
    for which, limit in over:
        while mine and (sizes()[which] > limit - limit // 64 or mine[0].start_offset <= repeated):
            repeated = max(repeated, mine[0].repeated)
            _close(expected, open_now, mine.pop(0), "too_large", record.offset)


def _bury_oldest(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    record: Record,
    mine: list[OpenSession],
    most: int,
) -> None:
    """Where any event opens a session: tombstones take the place of the oldest. Too many of them go, with all that began before
    the last event of one.
    """

    def tombstones() -> int:
        return sum(160 + len(each.key.encode()) for each in mine if each.tombstone or each.part > 1)

    if sum(map(_held, mine)) > most:
        for session in mine:
            if sum(map(_held, mine)) <= most - most // 64:
                break
            if not session.tombstone:
                _close(expected, open_now, session, "too_large", record.offset)
                open_now[session.source, session.key] = session
                session.tombstone, session.events, session.ids, session.part = True, [], set(), 1
    repeated = -1
    if tombstones() > MAX_TOMBSTONES_BYTES:
        left = MAX_TOMBSTONES_BYTES - MAX_TOMBSTONES_BYTES // 64
        while mine and (tombstones() > left or mine[0].start_offset <= repeated):
            repeated = max(repeated, mine[0].repeated)
            _close(expected, open_now, mine.pop(0), "too_large", record.offset)


def _held(session: OpenSession) -> int:
    """What a session counts against max_open_bytes."""
    return (
        0 if session.tombstone else len(session.key.encode()) + sum(len(each.raw) for each in session.events)
    )


def _judge(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    record: Record,
    parsed: _Parsed,
    settings: AssemblySettings,
) -> None:
    """The event and the session of its own key."""
    place = record.source, parsed.key
    event = parsed.event
    kind = _kind(event.type, settings)
    session = open_now.get(place)
    if session is not None and event.ts > session.latest + settings.timeout_ms:
        _time_out(expected, open_now, session, record.offset, settings)
        session = None

    if session is not None:
        same_first = event.raw == session.first.raw or (
            parsed.event_id is not None and parsed.event_id == session.first_id
        )
        same_start = kind == "start" and same_first and session.began_with_start
        may_come_again = kind == "entry" or settings.rules_version < 2
        seen = may_come_again and parsed.event_id is not None and parsed.event_id in session.ids
        if same_start or seen:
            session.last_offset = record.offset
            session.latest = max(session.latest, event.ts)
            if (kind == "start" and settings.rules_version >= 2) or not settings.start:
                session.repeated = record.offset
            if session.tombstone:
                expected.swallowed += 1
            else:
                expected.duplicates += 1
                session.dropped = True
            return

    if kind == "start" or (session is None and not settings.start):
        if session is not None:
            _close(expected, open_now, session, "restarted", record.offset)
        session = OpenSession(
            record.source, parsed.key, record.offset, record.offset, event.ts, event, parsed.event_id
        )
        session.began_with_start = kind == "start"
        open_now[place] = session
    elif session is None:
        alone = ((event.offset, event.ts, event.raw),)
        _letter(
            expected,
            record.source,
            (record.offset, record.offset, record.offset),
            "no_start",
            parsed.key,
            alone,
            1,
        )
        return

    last = session.last_offset
    session.last_offset = record.offset
    session.latest = max(session.latest, event.ts)
    if not settings.start:
        session.repeated = record.offset
    if session.tombstone:
        expected.swallowed += 1
        if kind == "end":
            del open_now[place]
        return

    n_bytes = sum(len(kept.raw) for kept in session.events) + len(event.raw)
    if len(session.events) + 1 > settings.max_events or n_bytes > settings.max_bytes:
        if not settings.start and not settings.end and session.events:
            session.last_offset = last
            _emit(expected, open_now, session, record.offset, "limit")
            _begin_part(open_now, record, parsed, session.part + 1, session.latest)
            _judge(expected, open_now, record, parsed, settings)
            return
        offsets = (session.start_offset, record.offset, record.offset)
        kept = tuple((kept.offset, kept.ts, kept.raw) for kept in session.events)
        _letter(expected, record.source, offsets, "too_large", parsed.key, kept, len(kept) + 1)
        session.tombstone, session.part = True, 1
        session.events = []
        session.ids = set()
        if kind == "end":
            del open_now[place]
        return

    session.events.append(event)
    if parsed.event_id is not None:
        session.ids.add(parsed.event_id)
    if kind == "end":
        _emit(expected, open_now, session, record.offset, "end")


def _begin_part(
    open_now: dict[tuple[int, str], OpenSession], record: Record, parsed: _Parsed, part: int, latest: int
) -> None:
    """An event that is still to be judged begins a later part. `latest`: of the whole session."""
    begun = OpenSession(
        record.source,
        parsed.key,
        record.offset,
        record.offset,
        max(latest, parsed.event.ts),
        parsed.event,
        parsed.event_id,
    )
    begun.part, begun.began_with_start = part, False
    open_now[record.source, parsed.key] = begun


def _time_out(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    session: OpenSession,
    closing: int,
    settings: AssemblySettings,
) -> None:
    if settings.on_timeout == "emit" and not session.tombstone:
        _emit(expected, open_now, session, closing, "timeout")
    else:
        _close(expected, open_now, session, "timed_out", closing)


def _emit(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    session: OpenSession,
    closing: int,
    ended_by: EndedBy,
) -> None:
    offsets = (session.start_offset, session.events[-1].offset, session.last_offset, closing)
    expected.sessions.append(
        ExpectedSession(session.source, session.key, *offsets, ended_by, session.part, tuple(session.events))
    )
    del open_now[session.source, session.key]


def _close(
    expected: Expected,
    open_now: dict[tuple[int, str], OpenSession],
    session: OpenSession,
    reason: str,
    closing: int,
) -> None:
    if not session.tombstone:
        kept = tuple((event.offset, event.ts, event.raw) for event in session.events)
        offsets = (session.start_offset, session.last_offset, closing)
        _letter(expected, session.source, offsets, reason, session.key, kept, len(kept))
    del open_now[session.source, session.key]


def _letter(
    expected: Expected,
    source: int,
    offsets: tuple[int, int, int],
    reason: str,
    key: str | None,
    events: tuple[tuple[int, int, bytes | None], ...],
    n_events: int,
) -> None:
    expected.letters.append(ExpectedLetter(source, *offsets, reason, key, events, n_events))


# Parsing: one record, its own verdict


def _kind(type_name: str, settings: AssemblySettings) -> str | None:
    """start, entry or end; None where the type is none of the settings'."""
    if type_name and type_name in (settings.start, settings.end):
        return "start" if type_name == settings.start else "end"
    if settings.entry == "*":
        return "entry" if len(type_name.encode()) <= 1024 else None
    return "entry" if type_name in settings.entries else None


def text_of(given: str | bytes | None) -> str | None:
    """What a key or a header says; None where it is not UTF-8."""
    try:
        return given.decode() if isinstance(given, bytes) else given
    except UnicodeDecodeError:
        return None


def valid_key(key: str | bytes | None) -> str | None:
    """The key as text, or None where it is no valid session key."""
    key = text_of(key)
    if not key or "\0" in key or len(key.encode()) > MAX_KEY_BYTES:
        return None
    return key


def _key_of_malformed(record: Record, settings: AssemblySettings) -> str | None:
    if settings.key_path is None:
        return valid_key(record.key)
    try:
        found = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        return None
    for name in settings.key_path:
        found = found.get(name) if isinstance(found, dict) else None
    return valid_key(found) if isinstance(found, str) else None


def parse(record: Record, settings: AssemblySettings, event_ids_in_header: bool = False) -> _Parsed | None:
    """The event in a record; None where the record is malformed."""
    paths = [settings.type_path, settings.key_path, settings.event_id_path, settings.time_path]
    document = _document(record.value, [path for path in paths if path is not None])
    if document is None or record.value is None:
        return None
    type_name = text_of(record.type) if settings.type_path is None else _at(document, settings.type_path)
    key: Any = record.key if settings.key_path is None else _at(document, settings.key_path)
    event_id = text_of(record.event_id) if event_ids_in_header else None
    if settings.event_id_path is not None:
        event_id = _at(document, settings.event_id_path)
    ts = record.ts
    if settings.time_path is not None:
        found = epoch_ms(_at(document, settings.time_path), settings.time_format, settings.rules_version)
        if found is None:
            return None
        ts = found
    if not (isinstance(key, str) or (settings.key_path is None and isinstance(key, bytes))):
        return None
    key = valid_key(key)
    if key is None or type_name is None or _kind(type_name, settings) is None:
        return None
    needs_id = settings.event_id_path is not None or event_ids_in_header
    if needs_id and not isinstance(event_id, str):
        return None
    if not -62_135_596_800_000 <= ts <= 253_402_300_799_999:
        return None
    return _Parsed(key, ExpectedEvent(record.offset, ts, type_name, record.value), event_id)


def _document(value: bytes | None, paths: list[tuple[str, ...]]) -> dict[str, Any] | None:
    """The decoded object; None unless it is one JSON object in which the named fields are clear."""
    if value is None:
        return None
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    pairs = json.loads(value, object_pairs_hook=_Pairs)
    for path in paths:
        node = pairs
        for depth, name in enumerate(path):
            if not isinstance(node, _Pairs):
                return None  # a parent that is not an object
            found = [item for key, item in node.items if key == name]
            if len(found) > 1:
                return None  # named twice
            if not found or found[0] is None:
                break
            node = found[0]
            if depth == len(path) - 1 and isinstance(node, _Pairs | list):
                return None
    return document


class _Pairs:
    """A JSON object as it was written, repeated names included."""

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if document is None:
            return None
        document = document.get(name)
    return document


def epoch_ms(value: Any, time_format: str, rules: int = RULES_VERSION) -> int | None:
    """What a time field says; None where it is no time."""
    if time_format == "epoch_ms":
        return value if type(value) is int and -(2**63) <= value < 2**63 else None
    if not isinstance(value, str) or not value.isascii():
        return None
    if rules < 2 and not _COMMON_TIME.fullmatch(value):
        return None
    text, bracket, zone_name = value.partition("[")
    if bracket and (not zone_name[:-1] or not zone_name.endswith("]") or "]" in zone_name[:-1]):
        return None
    found = _EXTENDED_TIME.fullmatch(text) or (None if bracket else _BASIC_TIME.fullmatch(text))
    if found is None or (bracket and found[8] is None):
        return None
    fraction = (found[7] or "").ljust(3, "0")[:3]
    zone = (found[8] or "Z").replace(":", "").replace("Z", "+00")
    ahead_h, ahead_m, ahead_s = (int(part or "0") for part in (zone[1:3], zone[3:5], zone[5:7]))
    if ahead_h > 23 or ahead_m > 59 or ahead_s > 59:
        return None
    try:
        utc = datetime(*(int(part or "0") for part in found.groups()[:6]), int(fraction) * 1000, tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        return None
    ahead = timedelta(hours=ahead_h, minutes=ahead_m, seconds=ahead_s)
    ms = (utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return ms - ahead // timedelta(milliseconds=1) * (-1 if zone[0] == "-" else 1)
