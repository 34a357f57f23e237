"""Bytes as a partition's log and its cuts into batches: what a fuzzer changes, and what the kept corpus holds.

    <rules> <record> 0x1E <record> 0x1E …

A record is two bytes that say what it is, and its text, in fields that 0x1F divides: value, key, type, event id, clock. Most records are
an event of a few kinds and keys with a bit of broken JSON inside; a *raw* one is the fields as they are. `x 0x1D n` repeats a byte 8 n
times more, so that a few bytes are an enormous key or a deep nesting. Any bytes are a log.
"""

import re
from dataclasses import dataclass

from service.settings import SessionSettings
from spark_job.sessions.settings import MAX_TS_MS, MIN_TS_MS
from tests.support.reference.model import Record

RULES = (
    SessionSettings(timeout_s=0.06, grace_s=0.02, max_events=3, max_bytes=1_024),
    SessionSettings(timeout_s=0.06, grace_s=0.02, event_id="$.id"),
    SessionSettings(timeout_s=0.06, key="$.d.key", type="$.d.type", time="$.time", time_format="epoch_ms"),
    SessionSettings(timeout_s=0.06, time="$.time", max_events=4, event_id="$.d.id"),
    SessionSettings(timeout_s=0.06, key="key", type="header:type", event_id="header:event_id"),
    SessionSettings(timeout_s=0.06, key="key", type="header:type", max_events=3, clock_records=True),
)
_TEMPLATES = (
    b'{"event_type":"%(kind)b","session_key":"%(key)b"%(text)b}',
    b'{"event_type":"%(kind)b","session_key":"%(key)b","id":"%(id)b"%(text)b}',
    b'{"d":{"key":"%(key)b","type":"%(kind)b"},"time":%(time)d%(text)b}',
    b'{"event_type":"%(kind)b","session_key":"%(key)b","time":"%(iso)b","d":{"id":"%(id)b"}%(text)b}',
    b"{%(text)b}",
    b"{%(text)b}",
)
_KINDS = (b"start_event", b"entry_event", b"end_event")
_KEYS = (b"a", b"b", "ü".encode())
_ELAPSED_MS = (0, 0, 1, 5, 61, 81, 200, -70)
_STRANGE_MS = (-1, 0, MIN_TS_MS, MIN_TS_MS - 1, MAX_TS_MS, MAX_TS_MS + 1, 2**63 - 1, -(2**63))
_REPEATED = re.compile(rb"(.)\x1d(.)", re.DOTALL)
_MOST_RECORDS = 48
_MOST_BYTES = 8_192


@dataclass(frozen=True)
class Cut:
    """Where a batch ends, and whether the open sessions are lost behind it."""

    end: int
    lose_cache: bool


@dataclass(frozen=True)
class Log:
    """The records of one partition, and how a job takes them."""

    session: SessionSettings
    records: list[Record]
    cuts: list[Cut]


def log_of(data: bytes) -> Log:
    """Return the log that some bytes stand for."""
    rules = (data[0] if data else 0) % len(RULES)
    records: list[Record] = []
    cuts: list[Cut] = []
    offset, now = 0, 1_000
    for text in data[1:].split(b"\x1e")[:_MOST_RECORDS]:
        what, when = text[0] if text else 0, text[1] if len(text) > 1 else 0
        if what & 0x04:
            cuts.append(Cut(offset, bool(what & 0x08)))
        offset += 1 + (what >> 4 & 1)  # a transaction's marker takes an offset
        now += _ELAPSED_MS[when & 7]
        ts = _STRANGE_MS[what >> 5] if when & 0x80 else now
        records.append(_record(rules, offset, ts, what & 3, when >> 3 & 3, _repeated(text[2:])))
    return Log(RULES[rules], records, cuts)


def _record(rules: int, offset: int, ts: int, kind: int, key: int, text: bytes) -> Record:
    fields = [*text.split(b"\x1f"), None, None, None, None]
    value, own_key, own_type, event_id, clock = fields[:5]
    if kind == len(_KINDS):
        own = value if text and (value or clock is None) else None
        return Record(0, offset, ts, own_key, own, own_type, event_id, clock=clock)
    named = own_key or b"" if key == len(_KEYS) else _KEYS[key]
    number = event_id or b"%d" % offset
    parts: dict[bytes, object] = {
        b"kind": _KINDS[kind],
        b"key": named,
        b"id": number,
        b"time": ts,
        b"iso": b"1970-01-01T00:00:%02d.%03dZ" % divmod(ts % 60_000, 1_000),
        b"text": value,
    }
    return Record(0, offset, ts, named, _TEMPLATES[rules] % parts, _KINDS[kind], number)


def _repeated(text: bytes) -> bytes:
    return _REPEATED.sub(lambda found: found[1] * (1 + 8 * found[2][0]), text)[:_MOST_BYTES]
