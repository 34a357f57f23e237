"""The open sessions of a partition: equal ones have one digest and one form, and nothing else is ever taken for them."""

import random
import subprocess
import sys
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import mmh3
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import OpenState
from spark_job.sessions.state.segments import Segment
from tests.support.reference.assembled import table
from tests.support.reference.kept import reread
from tests.support.reference.model import Record

RULES = AssemblySettings(timeout_ms=1000, grace_ms=100, max_events=4, max_bytes=2000, event_id_path=("id",))


def record(offset: int, kind: str, key: str = "k", **body: object) -> Record:
    value = {"event_type": f"{kind}_event", "session_key": key, "id": f"{offset}", **body}
    return Record(0, offset, offset, key, orjson.dumps(value))


def state_of(*batches: list[Record], rules: AssemblySettings = RULES) -> OpenState:
    """What is open after some batches."""
    state = OpenState.empty()
    for batch in batches:
        state = assemble(state, table(batch, rules), rules).state
    return state


A = [record(0, "start", "a"), record(3, "entry", "a"), record(4, "entry", "a")]
B = [record(1, "start", "b"), record(2, "entry", "b")]
TOMBSTONE = [record(5, "start", "t"), *(record(at, "entry", "t") for at in (6, 7, 8, 9))]
LOG = sorted([*A, *B, *TOMBSTONE], key=lambda each: each.offset)
WITHOUT = [each for each in LOG if each not in TOMBSTONE]
NEWEST = [record(20, "entry", "a"), record(21, "entry", "b")]
"""What the clock says last."""


def test_nothing_open_has_no_digest_and_nothing_to_keep() -> None:
    empty = OpenState.empty()
    assert (empty.digest, empty.safe_offset, len(empty.sessions), empty.chunks) == ("", None, 0, ())
    done = state_of([*B, record(3, "end", "b")])
    assert (done.digest, done.safe_offset, done.chunks) == ("", None, ())
    later = state_of(B, [record(3, "end", "b")])
    assert (later.digest, later.safe_offset, later.chunks) == ("", None, ())


def test_reading_and_writing_change_no_byte() -> None:
    state = state_of(LOG[:4], LOG[4:])
    again = reread(state)
    assert (again.digest, again.encoded, again.last) == (state.digest, state.encoded, state.last)
    assert [chunk.encoded() for chunk in again.chunks] == [chunk.encoded() for chunk in state.chunks]
    ends = [record(10, "end", "a"), record(11, "end", "b"), record(12, "end", "t")]
    closed = [assemble(each, table(ends, RULES), RULES) for each in (state, again)]
    assert [each.raws() for each in closed[0].closed] == [each.raws() for each in closed[1].closed]
    assert [each.value for each in A] + [ends[0].value] == closed[0].closed[0].raws()
    assert closed[0].letters == closed[1].letters


@pytest.mark.guarantee(40)
def test_the_digest_is_that_of_the_table_and_of_nothing_else() -> None:
    at_once, one_by_one = state_of(LOG), state_of(*([each] for each in LOG))
    assert len(at_once.chunks) == 1
    assert at_once.digest == one_by_one.digest == OpenState.of(at_once.sessions, last=at_once.last).digest
    assert len(at_once.digest) == 34


@pytest.mark.parametrize(
    "changed",
    [
        replace(LOG[2], value=orjson.dumps({"event_type": "entry_event", "session_key": "b", "id": "?"})),
        replace(LOG[2], value=(LOG[2].value or b"").replace(b'"id":"2"', b'"id":"x"')),
        replace(LOG[2], ts=3),
        replace(LOG[2], value=(LOG[2].value or b"") + b" "),
    ],
    ids=["another payload", "another event id", "another time", "another spelling"],
)
def test_another_event_in_an_open_session_is_another_digest(changed: Record) -> None:
    assert state_of([*LOG[:2], changed, *LOG[3:]]).digest != state_of(LOG).digest


def test_a_tombstone_is_part_of_what_is_open() -> None:
    with_it, without = (state_of(each, NEWEST) for each in (LOG, WITHOUT))
    assert with_it.digest != without.digest
    assert with_it.with_tombstones(OpenSessions.empty()).digest == without.digest
    assert without.with_tombstones(with_it.tombstones).digest == with_it.digest
    swallowed_more = state_of(LOG, [record(10, "entry", "t")], NEWEST)
    assert swallowed_more.digest != with_it.digest, "its last event and latest time are part of it"


def test_a_later_part_takes_no_room_in_the_table() -> None:
    """outbox.remembers() reads the table, and knows no parts."""
    rules = replace(RULES, start="", end="", entry="*", on_timeout="emit")
    table_of_second = state_of([record(at, "entry") for at in range(6)], rules=rules).sessions
    assert table_of_second.part.tolist() == [2]
    as_first = replace(table_of_second, part=np.array([1])).encoded
    assert len(table_of_second.encoded) == len(as_first)
    assert table_of_second.encoded != as_first
    again = OpenSessions.decoded(memoryview(table_of_second.encoded))
    assert (again.part.tolist(), again.rows.tolist()) == ([2], [2])


@pytest.mark.guarantee(20)
def test_a_tombstone_takes_the_place_of_what_a_rebuild_found_for_its_key() -> None:
    """What looks like its session's start may be the first one once more, which it swallows."""
    kept = state_of(LOG, NEWEST)
    found = state_of(WITHOUT, [record(10, "start", "t")], NEWEST)
    assert len(found.sessions) == 3
    assert found.with_tombstones(kept.tombstones).digest == kept.digest
    forgotten = state_of(WITHOUT, NEWEST)
    assert kept.with_tombstones(OpenSessions.empty()).digest == forgotten.digest


def test_the_safe_offset_is_the_oldest_open_sessions_start_whatever_is_a_tombstone() -> None:
    assert state_of(LOG).safe_offset == 0
    assert state_of(LOG, [record(10, "end", "a")]).safe_offset == 1
    assert state_of(TOMBSTONE, [record(10, "start", "a")]).safe_offset == 10
    assert state_of(TOMBSTONE).safe_offset is None


@pytest.mark.parametrize("damage", ["no chunks", "older chunk gone", "newer chunk gone", "other events"])
def test_events_that_are_not_those_of_the_table_are_refused(damage: str) -> None:
    state = state_of(LOG[:2], LOG[2:4], rules=replace(RULES, max_events=100))
    assert len(state.chunks) == 2
    older, newer = state.chunks
    chunks = {
        "no chunks": (),
        "older chunk gone": (newer,),
        "newer chunk gone": (older,),
        "other events": state_of([replace(LOG[0], ts=1), *LOG[1:4]]).chunks,
    }[damage]
    for key in ("a", "b"):
        new = table([record(10, "end", key), record(11, "start", key)], RULES)
        assert len(assemble(state, new, RULES).closed) == 1
    broken = OpenState.of(state.sessions, chunks)
    with pytest.raises(DamagedStateError):
        assemble(broken, table([record(10, "end", "a"), record(11, "end", "b")], RULES), RULES)


def test_what_a_tombstone_has_left_in_an_older_chunk_is_not_taken_for_its_events() -> None:
    """Else its next event, or another key's that goes event by event with it, would find the state damaged."""
    others = [record(at, "start", f"{at}") for at in range(10, 30)]
    before = state_of([*TOMBSTONE[:4], *others])
    buried = state_of([*TOMBSTONE[:4], *others], [record(30, "entry", "t")])
    assert len(before.chunks) == len(buried.chunks) == 1
    assert buried.chunks[0] is not None
    assert buried.sessions.is_tombstone.tolist() == [True, *[False] * len(others)]
    assert 5 in buried.chunks[0].start, "the session's events are still there"
    ended = assemble(reread(buried), table([record(31, "entry", "t"), record(32, "end", "t")], RULES), RULES)
    assert (ended.letters, ended.counts.swallowed, len(ended.state.sessions)) == ([], 2, len(others))


def flipped(data: bytes, at: int, mask: int) -> memoryview:
    out = bytearray(data)
    out[at] ^= mask
    return memoryview(bytes(out))


def contents(state: OpenState) -> list[tuple[Any, ...]]:
    """Every event of every open session, as a closed session or a letter would show it."""
    held = state.events_of(state.sessions.start)
    return [
        held.start.tolist(),
        held.first.tolist(),
        held.events.offset.tolist(),
        held.events.ts.tolist(),
        held.events.kind.tolist(),
        held.events.raws(0, len(held)),
        held.events.ids().to_pylist(),
    ]


# One session without event ids in its oldest events, one that is gone, and a tombstone.
NO_IDS = replace(RULES, event_id_path=None)
MIXED = state_of(
    [record(0, "start", "x"), *A[1:], record(5, "start", "y")],
    *(
        [each]
        for each in [record(20, "start", "z"), *(record(at, "entry", "z", n=at) for at in range(21, 23))]
    ),
)
OLDER = state_of([record(0, "start", "a"), record(1, "entry", "a"), record(2, "start", "gone")], rules=NO_IDS)
NEWER = assemble(OLDER, table([*A[1:], *TOMBSTONE, record(10, "end", "gone")], RULES), RULES).state
DAMAGED = [MIXED, NEWER]


@pytest.mark.guarantee(39)
@pytest.mark.parametrize("state", DAMAGED, ids=["many chunks", "with and without event ids"])
@pytest.mark.parametrize("mask", [0x01, 0x02, 0x80, 0xFF])
def test_any_damaged_byte_of_the_events_is_found_or_changes_nothing(state: OpenState, mask: int) -> None:
    intact, whole = contents(state), [memoryview(b"".join(chunk.encoded())) for chunk in state.chunks]
    for number, part in enumerate(whole):
        for at in range(len(part)):
            broken = [*whole[:number], flipped(bytes(part), at, mask), *whole[number + 1 :]]
            try:
                found = contents(OpenState.of(state.sessions, tuple(map(EventChunk.decoded, broken))))
            except DamagedStateError:
                continue
            assert found == intact, f"byte {at} of chunk {number}"


@settings(max_examples=200, derandomize=True)
@given(st.sampled_from(DAMAGED), st.data())
def test_what_is_cut_off_is_refused(state: OpenState, data: st.DataObject) -> None:
    chunk = b"".join(state.chunks[0].encoded())
    with pytest.raises(DamagedStateError):
        EventChunk.decoded(memoryview(chunk[: data.draw(st.integers(0, len(chunk) - 8))]))
    sessions = state.sessions.encoded
    with pytest.raises(DamagedStateError):
        OpenSessions.decoded(memoryview(sessions[: data.draw(st.integers(0, len(sessions) - 8))]))


@pytest.mark.guarantee(180)
@given(st.binary(max_size=200))
def test_rubbish_is_refused_as_damaged(data: bytes) -> None:
    for read in (EventChunk.decoded, OpenSessions.decoded, Segment.decoded):
        try:
            read(memoryview(data))
        except DamagedStateError:
            continue
        assert not any(data[:8]), "only an empty one is that short"


@pytest.mark.parametrize("seed", range(4))
def test_the_chunks_stay_few_however_many_batches_a_session_lasts(seed: int) -> None:
    """And an event is copied a few times at the most."""
    rng = random.Random(seed)
    rules = replace(RULES, max_events=10**6, max_bytes=10**9, timeout_ms=10**9, event_id_path=None)
    state, offset, copied, most = OpenState.empty(), 0, 0, 0
    live: list[str] = []
    for _ in range(300):
        batch = []
        for _ in range(rng.choice([1, 1, 2, 30])):
            kind = "start" if len(live) < 5 or rng.random() < 0.1 else rng.choice(["entry"] * 9 + ["end"])
            key = f"{offset}" if kind == "start" else rng.choice(live)
            (live.append if kind == "start" else live.remove if kind == "end" else str)(key)
            batch.append(record(offset, kind, key))
            offset += 1
        after = assemble(state, table(batch, rules), rules).state
        copied += sum(len(chunk) for chunk in after.chunks if not any(chunk is old for old in state.chunks))
        state = after
        most = max(most, len(state.chunks))
    assert 1 < most <= 12
    assert copied < 8 * offset


@pytest.mark.parametrize("seed", range(4))
def test_without_closed_sessions_the_events_of_the_open_ones_are_left_and_nothing_else_changes(
    seed: int,
) -> None:
    rng = random.Random(seed)
    log, state, met = list[Record](), OpenState.empty(), 0
    for offset in range(120):
        kind = rng.choice(["start", "entry", "entry", "end"])
        log.append(record(offset, kind, f"{rng.randrange(12)}", n=offset))
    while log:
        size = rng.randrange(1, 9)
        state = assemble(state, table(log[:size], RULES), RULES).state
        log = log[size:]
        cleaned = state.without_closed(set())
        assert (cleaned.digest, cleaned.live, cleaned.last) == (state.digest, state.live, state.last)
        assert sum(map(len, cleaned.chunks)) == state.live.totals.events
        assert [each.live for each in cleaned.held] == [len(each.chunk) for each in cleaned.held]
        assert contents(cleaned) == contents(state)
        assert cleaned.without_closed(set()) is cleaned
        met += cleaned is not state
        state = rng.choice([state, cleaned])
    assert met > 5


def test_chunks_that_are_kept_as_they_are_and_those_without_a_closed_session_are_not_copied() -> None:
    ended = [record(30, "end", "b"), record(31, "start", "c")]
    state = state_of(LOG[:2], LOG[2:4], ended, rules=replace(RULES, max_events=100))
    older, newer, newest = state.chunks
    cleaned = state.without_closed(set())
    assert [len(each) for each in cleaned.chunks] == [1, 1, 1]
    assert [cleaned.chunks[0] is older, cleaned.chunks[1] is newer, cleaned.chunks[2] is newest] == [
        False,
        False,
        True,
    ]
    assert state.without_closed({older, newer}) is state
    assert state.without_closed({newer}).chunks[1:] == (newer, newest)


def test_untouched_sessions_are_carried_on_without_a_copy_of_their_events() -> None:
    rules = replace(RULES, max_events=10**6, max_bytes=10**9)
    before = state_of(
        [record(0, "start", "a"), *(record(at, "entry", "a", n=at) for at in range(1, 50))], rules=rules
    )
    after = assemble(before, table([record(60, "start", "b")], rules), rules).state
    assert after.chunks[0] is before.chunks[0]


def test_tables_are_ordered_by_start_whatever_they_are_put_together_from() -> None:
    state = state_of(LOG)
    tables = [state.sessions.take(np.array([at])) for at in (2, 0, 1)]
    together = tables[0].changed(np.array([True]), *tables[1:])
    assert together.encoded == state.sessions.encoded
    assert all(a < b for a, b in pairwise(together.start.tolist()))


def test_the_encoded_form_names_every_column_of_the_table() -> None:
    """One that is left out of it would be left out of what a position remembers."""
    sessions = state_of(LOG).sessions
    for field in fields(OpenSessions):
        column = getattr(sessions, field.name)
        if isinstance(column, pa.Array):
            values = column.to_pylist()
            other: Any = "?" if pa.types.is_large_string(column.type) else b"?"
            changed: Any = pa.array([other, *values[1:]], column.type)
        else:
            changed = column.copy()
            changed[0] = not changed[0] if column.dtype == bool else changed[0] + 1
        assert replace(sessions, **{field.name: changed}).encoded != sessions.encoded, field.name


def test_without_a_repeated_start_the_encoded_form_is_that_of_earlier_releases() -> None:
    """Or an upgraded job would not read the tombstones of its position."""
    state = state_of(LOG)
    assert mmh3.mmh3_x64_128_digest(state.sessions.encoded).hex() == "303d9a2dc7c97030cd77a20294087fc9"
    again = state_of(LOG, [replace(LOG[0], offset=10), replace(TOMBSTONE[0], offset=11)])
    assert reread(again).sessions.repeated.tolist() == [10, -1, 11]
    assert len(again.sessions.encoded) == len(state.sessions.encoded) + 2 * 8


def test_the_assembler_imports_neither_spark_nor_postgres_nor_kafka() -> None:
    program = (
        "import sys, spark_job.sessions.assembler, spark_job.api;"
        "print([name for name in ('pyspark', 'psycopg', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
