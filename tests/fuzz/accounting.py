"""Every record of a log is accounted for, whatever is in it and however it is cut.

The job's own tasks take the log twice, in batches with lost caches and at once, and the reference model judges it once. Their cache is in
memory: it is a target of its own (`kept`), and a disk would take most of a fuzzer's time.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import orjson

from service.settings import Settings
from spark_job.assembly import rebuild, task
from spark_job.assembly.slices import Slice
from spark_job.input.offsets import TopicPartition
from spark_job.ledger.assembly_rules import applied_rules, stored_rules
from spark_job.outputs.session_row import N_FIELDS
from spark_job.sessions.state.open_state import OpenState
from spark_job.sink.batch_result import Letter, SessionRow, parts
from tests.fuzz.logs import Log
from tests.support.histories.tasks import Job, kafka
from tests.support.reference.kept import reread
from tests.support.reference.model import Record, expected_sessions, is_clock_record
from tests.support.sink import copied

WHERE = TopicPartition("id", 0)
_SAME_FOR_ANY_CUT = ("events", "sessions", "malformed", "duplicates", "swallowed")
_MODEL_DEPTH = 900
"""The model's JSON decoder gives up at Python's own limit, which is below that of the job's."""
_HUGE_NUMBER = re.compile(rb"\d[eE][+-]?\d{3}|\d{200}")
"""What may be beyond a double's range: the job's decoder and the model's draw that line in different places (docs/sessions.md)."""

Event = tuple[int, bytes | None]
"""Offset and value."""


def check_log(log: Log) -> None:
    """Fail where the job raises, a record is in no place or in two, a cut changes the outcome, or the model says something else."""
    _MemoryCache.kept.clear()
    with (
        patch.object(rebuild, "committed_records", kafka({0: log.records})),
        patch.object(task, "SessionCache", _MemoryCache),
    ):
        plain = _run(log, Path("plain"), cut=False)
        cut = _run(log, Path("cut"), cut=True) if log.cuts else plain
        assert cut.outcome() == plain.outcome(), "the cuts into batches change what comes out"
        assert cut.digests() == plain.digests(), "the cuts into batches change what stays open"
        counted = [{name: job.counts[name] for name in _SAME_FOR_ANY_CUT} for job in (cut, plain)]
        assert counted[0] == counted[1], "the cuts into batches change the counts"
        _check_accounts(_events_in(log), plain, _open_events(plain))
        _check_rows(plain)
        _check_model(log, plain)


class _MemoryCache:
    """In the place of SessionCache."""

    kept: ClassVar[dict[tuple[str, str], OpenState]] = {}
    """By (folder, digest)."""
    problem = ""

    def __init__(self, root: str, _outbox_uuid: str, _of: Slice | None = None) -> None:
        self._root = root

    def load(self, wanted: str) -> OpenState | None:
        found = self.kept.get((self._root, wanted))
        return None if found is None else reread(found)

    def store(self, state: OpenState, _before: str) -> None:
        self.kept[self._root, state.digest] = state

    def check_unchanged(self) -> None: ...


def _run(log: Log, caches: Path, *, cut: bool) -> Job:
    job = Job({0: log.records}, caches, log.session)
    if cut:
        for place in log.cuts:
            job.run_batch({0: place.end}, lose_cache=[0] if place.lose_cache else [], size=3)
    job.run_batch({0: log.records[-1].offset + 1})
    return job


def _events_in(log: Log) -> list[Record]:
    """All but the clock records, which say what time it is and leave nothing."""
    rules = applied_rules(stored_rules(Settings(session=log.session))).rules
    return [record for record in log.records if not (rules.clock_records and is_clock_record(record))]


def _open_events(job: Job) -> list[Event]:
    """The events of the sessions that are still open, as the cache has them."""
    opened = job.position.open.get(WHERE)
    if opened is None:
        return []
    state = _MemoryCache(str(job.caches / "kept"), "").load(opened.digest or "")
    assert state is not None
    held = state.events_of(state.sessions.start[np.flatnonzero(state.sessions.rows > 0)])
    assert opened.events == len(held)
    return list(zip(held.events.offset.tolist(), held.events.raws(0, len(held)), strict=True))


def _check_accounts(records: Sequence[Record], job: Job, opened: Sequence[Event]) -> None:
    """Each record is an event of one session, of an open one or of a letter with its bytes, or it is counted."""
    sessions = [event for row in job.sessions for event in _events_of(row)]
    letters = [event for letter in job.letters for event in kept(letter)]
    given = {record.offset: record.value for record in records}
    for offset, value in (*sessions, *letters, *opened):
        assert offset in given, f"nobody wrote offset {offset}"
        assert value == given[offset], f"offset {offset} has other bytes than it had"
    found = Counter(offset for offset, _ in (*sessions, *letters, *opened))
    assert set(found.values()) <= {1}, f"accounted for more than once: {found.most_common(3)}"
    over = sum(letter.event_count - letter.kept for letter in job.letters)
    dropped = job.counts["duplicates"] + job.counts["swallowed"] + over
    assert len(given) == len(found) + dropped, f"nobody accounts for one of {sorted(given.keys() - found)}"
    assert job.counts["events"] == len(given)
    assert job.counts["malformed"] == sum(letter.reason == "malformed" for letter in job.letters)


def _events_of(row: SessionRow) -> list[Event]:
    """The events that the transform was given: it puts all of them into its only output."""
    *_, n_events, _, _, values, _, _, _, _ = copied.elements(row.fields, N_FIELDS - 4)
    (value,) = copied.array(values or b"")
    events = [(offset, bytes.fromhex(raw)) for offset, _, _, raw in orjson.loads(value or b"null")["events"]]
    assert copied.int8s((n_events or b"")[20:], 1) == [len(events)]
    assert (events[0][0], events[-1][0]) == (row.start, row.end)
    for _, raw in events:
        assert _HUGE_NUMBER.search(raw) or isinstance(orjson.loads(raw), dict), (
            "no transform could decode this event"
        )
    return [*events]


def kept(letter: Letter) -> list[Event]:
    """The events in a letter."""
    offsets = copied.int8s(letter.offsets, letter.kept)
    assert len(copied.int8s(letter.times_ms, letter.kept)) == letter.kept
    assert offsets == sorted(offsets)
    return list(zip(offsets, copied.elements(letter.values, letter.kept), strict=True))


def _check_rows(job: Job) -> None:
    """What is written with COPY can be read, and holds no text that Postgres refuses."""
    (rows,) = parts(job.sessions, 1 << 30)
    for row in rows:
        key, *_, session_outputs, topics, values, _keys, _headers, _partitions, _timestamps = copied.fields(
            row.copy(1, 8, 0)
        )
        assert (key or b"").decode()
        assert len(copied.array(values or b"")) == len(copied.array(topics or b"")) == row.outputs
        assert len(copied.array(session_outputs or b"")) == row.sessions
    for letter in job.letters:
        types = [] if letter.types is None else copied.elements(letter.types, letter.kept)
        for text in (letter.detail.encode(), (letter.key or "").encode(), *filter(None, types)):
            assert "\0" not in text.decode()


def _check_model(log: Log, job: Job) -> None:
    """The reference model sorts the records in the same way."""
    values = [record.value or b"" for record in log.records]
    if any(
        _HUGE_NUMBER.search(each) or each.count(b"{") + each.count(b"[") > _MODEL_DEPTH for each in values
    ):
        return
    assembly = applied_rules(stored_rules(Settings(session=log.session)))
    in_header = "event_id" in assembly.columns.sources
    expected = expected_sessions(log.records, assembly.rules, in_header)
    assert [(row.key.decode(), row.start, row.end, _events_of(row)) for row in job.outcome()[0]] == [
        (each.key, each.start_offset, each.end_offset, [(event.offset, event.raw) for event in each.events])
        for each in expected.sessions
    ]
    assert [_told(letter) for letter in job.outcome()[1]] == [
        (
            *(each.reason, each.key, each.first_offset, each.last_offset, each.closing_offset),
            [(offset, value) for offset, _, value in each.events],
        )
        for each in expected.letters
    ]
    dropped: Mapping[str, int] = {"duplicates": expected.duplicates, "swallowed": expected.swallowed}
    assert {name: job.counts[name] for name in dropped} == dropped


def _told(letter: Letter) -> tuple[str, str | None, int, int, int, list[Event]]:
    offsets = letter.first_offset, letter.last_offset, letter.closing_offset
    return (letter.reason, letter.key, *offsets, kept(letter))
