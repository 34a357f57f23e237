"""Whatever the log and its cuts into batches: the assembler says what the model says, and what is open does not depend on the cuts."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any
from zlib import crc32

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_job.sessions import partition_limits
from spark_job.sessions.assembler import assemble
from spark_job.sessions.clock import clock_record_key, hashed_key
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference import model
from tests.support.reference.assembled import Outcome, add, add_open, assembled, expected_outcome, table
from tests.support.reference.kept import reread
from tests.support.reference.model import Record, expected_sessions

PROFILE = settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))

TIGHT = AssemblySettings(timeout_ms=60, grace_ms=20, max_events=3, max_bytes=700)
KEYS = ["a", "b", "Schlüssel-\U0001f511", "ab"]
MALFORMED = [
    None,
    b"",
    b"\xff\xfe",
    b'{"event_type":"start_event","session_key":"\xff","event_id":"1"}',
    b"null",
    b"[]",
    b"{}",
    b'{"event_type":"start_event"}',
    b'{"event_type":"other","session_key":"a","event_id":"1"}',
    b'{"event_type":"start_event","session_key":"a\\u0000","event_id":"1"}',
    b'{"event_type":"start_event","session_key":"","event_id":"1"}',
    b'{"event_type":"start_event","session_key":7,"event_id":"1"}',
    b'{"event_type":"start_event","session_key":"a","event_id":null}garbage',
    b'{"event_type":"start_event","event_type":"start_event","session_key":"a","event_id":"1"}',
    b'{"event_type":"start_event","session_key":"a","event_id":"1","z":NaN}',
    orjson.dumps({"event_type": "start_event", "session_key": "k" * 1025, "event_id": "1"}),
]
BODIES: list[dict[str, Any]] = [{}, {"n": 1}, {"text": "ü" * 90}]


@dataclass(frozen=True)
class Step:
    """One record to come: how far its time is from the one before, and what it is."""

    source: int
    key: str
    kind: str
    elapsed_ms: int
    body: int
    event_id: str
    malformed: bytes | None
    space: str
    by_broker: bool
    mark: bytes | None = None
    """The header of a clock record, which an event may have as well."""


STEPS = st.builds(
    Step,
    source=st.sampled_from([0, 0, 0, 7]),
    key=st.sampled_from([*KEYS[:1] * 4, *KEYS]),
    kind=st.sampled_from(
        ["start_event"] * 4 + ["entry_event"] * 6 + ["end_event"] * 4 + ["malformed"] + ["clock"] * 3
    ),
    elapsed_ms=st.sampled_from([0, 0, 1, 5, 5, 10, 40, 61, 81, 200, -5, -70, -200]),
    body=st.sampled_from([0, 0, 0, 1, 2]),
    event_id=st.sampled_from(["1", "2", "3", "4", "5", "6", "é"]),
    malformed=st.sampled_from(MALFORMED),
    space=st.sampled_from(["", "", "", " ", "\n"]),
    by_broker=st.sampled_from([False, False, False, True]),
    mark=st.sampled_from([b"1"] * 3 + [b"2", None]),
)


def as_log(steps: Sequence[Step], unique_ids: bool) -> list[Record]:
    """The steps as a log of all sources, in the order of time."""
    records = []
    ts = 1_000_000
    next_offset = {0: 0, 7: 5_000_000_000}
    for number, step in enumerate(steps):
        ts += step.elapsed_ms
        offset = next_offset[step.source]
        next_offset[step.source] += 1 + (step.body == 1)  # transaction markers leave holes
        body = {"event_type": step.kind, "session_key": step.key} | BODIES[step.body]
        body["event_id"] = f"{number}" if unique_ids else step.event_id
        if unique_ids:
            del body["event_id"]
        value = step.malformed if step.kind == "malformed" else orjson.dumps(body) + step.space.encode()
        value = None if step.kind == "clock" else value
        records.append(
            Record(step.source, offset, ts, step.key, value, by_broker=step.by_broker, clock=step.mark)
        )
    return records


def log_for(rules: AssemblySettings, steps: Sequence[Step]) -> list[Record]:
    """The steps as a log in which such rules find what they read. A record's own time may be before or behind its event's."""
    records = as_log(steps, unique_ids=rules.event_id_path is None)
    if rules.time_path is None:
        return records
    (field,) = rules.time_path
    return [
        replace(
            each,
            ts=each.ts + (0, 90, -20)[number % 3],
            value=orjson.dumps(orjson.loads(each.value) | {field: each.ts}),
        )
        if each.value is not None and steps[number].kind != "malformed"
        else each
        for number, each in enumerate(records)
    ]


def cut(records: list[Record], cuts: list[int]) -> list[list[Record]]:
    """The records in batches, cut anywhere."""
    places = sorted({min(place, len(records)) for place in cuts} | {0, len(records)})
    return [records[low:high] for low, high in pairwise(places)]


VARIANTS = {
    "plain": TIGHT,
    "event ids": replace(TIGHT, event_id_path=("event_id",)),
    "roomy": replace(TIGHT, max_events=1000, max_bytes=1 << 20),
    "few bytes": replace(TIGHT, max_events=1000, max_bytes=300),
    "no grace": replace(TIGHT, grace_ms=0, timeout_ms=10),
    "patient": replace(TIGHT, timeout_ms=100_000, max_events=4),
    "first rules": replace(TIGHT, rules_version=1),
    "emitted": replace(TIGHT, on_timeout="emit"),
    "emitted with event ids": replace(
        TIGHT, on_timeout="emit", event_id_path=("event_id",), max_events=1000, timeout_ms=30, grace_ms=0
    ),
    "emitted with room for three": replace(
        TIGHT, on_timeout="emit", max_events=6, max_open_bytes=900, timeout_ms=100
    ),
    "any event opens": replace(TIGHT, start="", entry=("entry_event", "start_event"), max_events=4),
    "any event opens and silence ends": replace(
        AssemblySettings(timeout_ms=30, grace_ms=5), start="", end="", entry="*", on_timeout="emit"
    ),
    "only silence ends": replace(
        TIGHT, end="", entry=("end_event", "entry_event"), on_timeout="emit", event_id_path=("event_id",)
    ),
    "in parts": replace(TIGHT, start="", end="", entry="*", on_timeout="emit", timeout_ms=300),
    "in parts with event ids": replace(
        TIGHT, start="", end="", entry="*", on_timeout="emit", timeout_ms=100, event_id_path=("event_id",)
    ),
    "in parts in little room": replace(
        TIGHT, start="", end="", entry="*", on_timeout="emit", timeout_ms=400, max_open_bytes=900
    ),
    "any event opens in little room": replace(
        TIGHT, start="", entry="*", on_timeout="emit", max_open_bytes=500, max_events=6, timeout_ms=200
    ),
    "any event opens with event ids": replace(
        TIGHT, start="", entry="*", on_timeout="emit", event_id_path=("event_id",), max_open_bytes=700
    ),
    "little room": replace(TIGHT, max_events=1000, max_bytes=1 << 20, max_open_bytes=400, timeout_ms=100_000),
    "room for three": replace(TIGHT, max_open_bytes=900, timeout_ms=500),
    "room for three with event ids": replace(
        TIGHT, event_id_path=("event_id",), max_events=6, max_open_bytes=900, timeout_ms=500
    ),
    "roomy with event ids": replace(TIGHT, event_id_path=("event_id",), max_events=1000, timeout_ms=500),
}
VARIANTS |= {
    f"{name} by clock records": replace(VARIANTS[name], clock_records=True)
    for name in (
        "plain",
        "emitted with event ids",
        "any event opens and silence ends",
        "in parts in little room",
        "room for three with event ids",
    )
}

TIMED = replace(TIGHT, time_path=("at",), time_format="epoch_ms")
VARIANTS |= {
    "times in a field": TIMED,
    "times in a field by the second rules": replace(TIMED, rules_version=2),
    "times in a field and clock records": replace(
        TIMED, clock_records=True, on_timeout="emit", max_events=1000, timeout_ms=200
    ),
}


@pytest.mark.guarantee(3, 16, 153)
@pytest.mark.parametrize("variant", VARIANTS)
@PROFILE
@given(steps=st.lists(STEPS, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_any_log_cut_anywhere_gives_what_the_model_gives(
    variant: str, steps: list[Step], cuts: list[int]
) -> None:
    rules = VARIANTS[variant]
    records = log_for(rules, steps)
    expected = expected_outcome(expected_sessions(records, rules))
    assert assembled(cut(records, cuts), rules) == expected


def carried(state: OpenState, records: list[Record], cuts: list[int], rules: AssemblySettings) -> OpenState:
    """What is open after some records of one source, cut anywhere, and kept in a cache between the cuts."""
    for batch in cut(records, cuts):
        state = reread(assemble(state, table(batch, rules), rules).state)
    return state


def busy_steps(rng: random.Random) -> list[Step]:
    """Sessions that hardly ever end, and now and then a record that is an hour ahead of those around it."""
    steps = list[Step]()
    ahead = 0
    for number in range(80):
        key = rng.choice(KEYS[:1] + KEYS)
        kind = rng.choice(["start_event"] * 4 + ["entry_event"] * 8 + ["end_event"] + ["clock"])
        elapsed, ahead = rng.choice([0, 1, 5, 10, 20, 90, -5]) - ahead, 0
        if rng.random() < 0.1:
            ahead = 3_480_000
        body, by_broker = rng.choice([0, 0, 0, 2]), rng.random() < 0.15
        steps.append(Step(0, key, kind, elapsed + ahead, body, f"{number % 7}", None, "", by_broker, b"1"))
    return steps


@pytest.mark.parametrize("variant", VARIANTS)
def test_busy_logs_give_what_the_model_gives_and_are_found_again(variant: str) -> None:
    rules, rng = VARIANTS[variant], random.Random(variant)
    is_bounded = rules.max_open_bytes is not None or min(rules.max_events, rules.max_bytes) < 1_000
    wanted = {"no_start", "restarted"} if rules.start else set[str]()
    if is_bounded:
        wanted.add("limit" if rules.has_parts else "too_large")
    reasons = set[str]()
    for number in range(15):
        if number >= 5 and reasons >= wanted:
            break
        records = log_for(rules, busy_steps(rng))
        expected = expected_outcome(expected_sessions(records, rules))
        cuts = [rng.randrange(len(records)) for _ in range(rng.randrange(9))]
        assert assembled(cut(records, cuts), rules) == expected
        found_again(records, cuts, rng.randrange(len(records)), rules)
        reasons |= {letter.reason for letter in expected.letters}
        reasons |= {session.ended_by for session in expected.sessions}
    assert (reasons >= {"no_start", "restarted"}) == bool(rules.start)
    assert bool(reasons & {"too_large", "limit"}) == is_bounded
    assert ("limit" in reasons) == (rules.has_parts and is_bounded)


@pytest.mark.guarantee(40)
@pytest.mark.parametrize("variant", VARIANTS)
@PROFILE
@given(
    steps=st.lists(STEPS, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    place=st.integers(0, 60),
)
def test_open_sessions_found_again_from_the_safe_offset_are_those_that_were_carried_on(
    variant: str, steps: list[Step], cuts: list[int], place: int
) -> None:
    rules = VARIANTS[variant]
    records = [each for each in log_for(rules, steps) if each.source == 0]
    found_again(records, cuts, place, rules)


def found_again(records: list[Record], cuts: list[int], place: int, rules: AssemblySettings) -> None:
    """What is open at a place, read again from its safe offset on, is what was carried on, and so is what follows."""
    before, after = records[:place], records[place:]
    kept = carried(OpenState.empty(), before, cuts, rules)
    expected = assemble(kept, table(after, rules), rules)
    for remembered in (kept.remembered, with_last_key(kept)):
        found = found_from_safe_offset(before, kept, lambda _: rules, remembered)
        assert (found.digest, found.remembered) == (kept.digest, kept.remembered)
        assert found.sessions.encoded == kept.sessions.encoded
        done = assemble(found, table(after, rules), rules)
        assert done.state.digest == expected.state.digest
        assert [each.raws() for each in done.closed] == [each.raws() for each in expected.closed]
        assert done.letters == expected.letters


def with_last_key(kept: OpenState) -> bytes:
    """What a position remembered before digests of form 3: the last record's key itself."""
    if kept.last is None or not kept.remembered:
        return kept.remembered
    offset = kept.last.offset
    keys = [*KEYS, clock_record_key(offset)]
    (key,) = (key for key in keys if hashed_key(key, offset) == kept.last.key_hash)
    older = replace(kept, last=replace(kept.last, key_hash=key)).remembered
    assert key.encode() in older
    return older


@pytest.mark.parametrize("place", range(6))
def test_a_tombstone_has_one_digest_wherever_its_log_was_cut(place: int) -> None:
    kinds = [("a", "end_event"), ("b", "start_event"), *[("b", "entry_event")] * 4]
    steps = [Step(0, key, kind, 1, 0, "", None, "", False) for key, kind in kinds]
    records = as_log(steps, unique_ids=True)
    whole, cut_in_two = (carried(OpenState.empty(), records, cuts, TIGHT) for cuts in ([], [place]))
    assert whole.sessions.is_tombstone.all()
    assert cut_in_two.digest == whole.digest


BOUNDED = [name for name, rules in VARIANTS.items() if rules.max_open_bytes is not None]


def crowded_log(rng: random.Random, unique_ids: bool) -> list[Record]:
    """Long sessions of six keys, whose starts are often sent again: in a while, when others have begun."""
    steps = list[Step]()
    for number in range(90):
        key = f"key-{rng.choice([0, 1, 1, 2, 2, 3, 4, 5])}"
        kind = rng.choice(["start_event"] * 5 + ["entry_event"] * 5 + ["end_event"] + ["clock"])
        body, event_id = 2 * (rng.random() < 0.3), f"{number}"
        if kind == "start_event":
            body, event_id = 2 * (rng.random() < 0.1), f"start of {key}"
        steps.append(Step(0, key, kind, rng.choice([0, 1, 5, 20]), body, event_id, None, "", False, b"1"))
    return as_log(steps, unique_ids)


@pytest.mark.parametrize("upgraded_at", [0, 40])
@pytest.mark.parametrize("variant", BOUNDED)
def test_at_every_offset_what_is_open_under_a_tight_bound_is_found_again(
    variant: str, upgraded_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a start was sent again behind the start of another session, and the sessions between ended for want of room.

    Below `upgraded_at` the first rules judge, which bound nothing and do not remember repeated starts.
    """
    for module in (partition_limits, model):
        monkeypatch.setattr(module, "MAX_TOMBSTONES_BYTES", 500)
    rules, rng = VARIANTS[variant], random.Random(variant)
    older = replace(rules, rules_version=1, max_open_bytes=None)

    def judge(record: Record) -> AssemblySettings:
        return older if record.offset < upgraded_at else rules

    met = Counter[str]()
    for _ in range(3):
        records, state, outcome = crowded_log(rng, rules.event_id_path is None), OpenState.empty(), Outcome()
        for at, record in enumerate(records):
            done = assemble(state, table([record], rules), judge(record))
            add(outcome, 0, done)
            state = reread(done.state)
            assert found_from_safe_offset(records[: at + 1], state, judge).digest == state.digest, at
            sessions = state.sessions
            met["with repeated start"] += int((sessions.repeated >= 0).any())
            met["tombstone with it"] += int((state.tombstones.repeated >= 0).any())
            behind = np.maximum.accumulate(sessions.repeated)[:-1] > sessions.start[1:]
            met["repeated behind another start"] += int(behind.any())
            met["ended"] += any("the oldest end" in letter.detail for letter in done.letters)
        add_open(outcome, 0, state)
        assert outcome.sort() == expected_outcome(expected_sessions(records, judge))
    assert met["ended"] > 1
    assert met["with repeated start"] > 50
    assert met["repeated behind another start"] > 20
    assert met["tombstone with it"] > 0 or variant != "room for three"


def test_a_malformed_record_ends_no_session_where_the_bound_has_become_smaller() -> None:
    start = Step(0, "a", "start_event", 0, 2, "", None, "", False)
    records = as_log(
        [start, replace(start, kind="malformed", malformed=b"{"), replace(start, key="b")],
        True,
    )
    state = assemble(OpenState.empty(), table(records[:1], TIGHT), TIGHT).state
    smaller = replace(TIGHT, max_open_bytes=100)
    after_malformed = assemble(state, table(records[1:2], smaller), smaller)
    assert [letter.reason for letter in after_malformed.letters] == ["malformed"]
    assert [letter.reason for letter in assemble(state, table(records[1:], smaller), smaller).letters] == [
        "malformed",
        "too_large",
        "too_large",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_rules_that_change_twice_on_the_way_leave_the_same_open_wherever_the_log_is_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first rules to others, and with another bound to the third: the clock, the bound and repeated starts in one log."""
    for module in (partition_limits, model):
        monkeypatch.setattr(module, "MAX_TOMBSTONES_BYTES", 500)
    rng = random.Random(seed)
    has_ids = seed % 2 == 0
    variants = [
        each
        for each in VARIANTS.values()
        if (each.event_id_path is not None) == has_ids and each.time_path is None
    ]
    first, second, third = (rng.choice(variants) for _ in range(3))
    generations = [
        (0, replace(first, rules_version=1, max_open_bytes=None)),
        (rng.randrange(10, 40), replace(second, rules_version=2)),
        (
            rng.randrange(40, 70),
            replace(third, rules_version=3, max_open_bytes=rng.choice([400, 900, 1 << 30])),
        ),
    ]
    records = as_log(busy_steps(rng), not has_ids) if seed % 4 < 2 else crowded_log(rng, not has_ids)

    def judge(record: Record) -> AssemblySettings:
        return next(rules for begin, rules in reversed(generations) if begin <= record.offset)

    def digests(cuts: list[int]) -> dict[int, str]:
        state, outcome, found = OpenState.empty(), Outcome(), dict[int, str]()
        for batch in cut(records, cuts):
            for rules, some in groupby(batch, judge):
                records_of = list(some)
                names = [(low, high, of.names) for (low, of), (high, _) in pairwise(generations)]
                state = state.with_types(each for each in names if each[1] <= records_of[0].offset)
                done = assemble(state, table(records_of, rules), rules)
                add(outcome, 0, done)
                state = reread(done.state)
            found[batch[-1].offset] = state.digest
            before = [each for each in records if each.offset <= batch[-1].offset]
            assert found_from_safe_offset(before, state, judge).digest == state.digest
        add_open(outcome, 0, state)
        assert outcome.sort() == expected_outcome(expected_sessions(records, judge))
        return found

    one_by_one = digests(list(range(len(records))))
    for count in (0, 1, 6):
        assert digests(rng.sample(range(len(records)), count)).items() <= one_by_one.items()


@pytest.mark.guarantee(40)
@pytest.mark.parametrize("seed", range(4))
def test_sessions_that_the_second_rules_judged_are_found_again_by_them(seed: int) -> None:
    """The third ones take no single event's field for the time, even if the broker has set its record's own."""
    rng, older = random.Random(seed), replace(TIMED, timeout_ms=300, max_events=1000, rules_version=2)

    def judge(record: Record) -> AssemblySettings:
        return older if record.offset < 40 else replace(older, rules_version=3)

    records = log_for(older, [replace(each, by_broker=True) for each in busy_steps(rng)])
    state, outcome = OpenState.empty(), Outcome()
    for at, record in enumerate(records):
        done = assemble(state, table([record], older), judge(record))
        add(outcome, 0, done)
        state = reread(done.state)
        assert found_from_safe_offset(records[: at + 1], state, judge).digest == state.digest, at
    add_open(outcome, 0, state)
    assert outcome.sort() == expected_outcome(expected_sessions(records, judge))
    assert outcome != expected_outcome(expected_sessions(records, older))


def found_from_safe_offset(
    before: list[Record],
    kept: OpenState,
    judge: Callable[[Record], AssemblySettings],
    remembered: bytes | None = None,
) -> OpenState:
    """What a rebuild finds of what is open after some records. `remembered`: in another form."""
    remembered = kept.remembered if remembered is None else remembered
    safe, found = kept.safe_offset, OpenState.awaiting(remembered)
    again = [] if safe is None else [each for each in before if each.offset >= safe]
    for rules, records in groupby(again, judge):
        found = assemble(found, table(list(records), rules), replace(rules, max_open_bytes=None)).state
    return found.with_remembered(remembered)


def long_log(rng: random.Random) -> list[Record]:
    """Thousands of events of many interleaved sessions, mostly clean, with some of every anomaly."""
    running: list[list[tuple[str, str, dict[str, Any]]]] = []
    records: list[Record] = []
    ts, offsets = 10**12, [0, 0, 0]
    for number in range(400):
        key = f"key-{rng.randrange(250)}"
        events = [("start_event", key, {"n": number})]
        events += [("entry_event", key, {"i": i}) for i in range(rng.choice([0, 1, 3, 10, 30]))]
        events += [("end_event", key, {})] * (rng.random() < 0.93)
        events = events[1:] if rng.random() < 0.03 else events
        if rng.random() < 0.1:
            events.insert(rng.randrange(len(events) + 1), events[0])
        running.append(events)
    waiting = running[:]
    live: list[list[tuple[str, str, dict[str, Any]]]] = []
    while live or waiting:
        while waiting and len(live) < 20:
            live.append(waiting.pop())
        session = rng.choice(live)
        if not session:
            live.remove(session)
            continue
        kind, key, body = session.pop(0)
        ts += rng.choice([0, 1, 2, 30, -20]) if rng.random() > 0.002 else 70_000
        source = crc32(key.encode()) % 3 if rng.random() > 0.01 else 0
        value = orjson.dumps({"event_type": kind, "session_key": key, **body})
        if rng.random() < 0.01:
            value = value[: rng.randrange(len(value))]
        records.append(Record(source, offsets[source], ts, None, value))
        offsets[source] += 1
    return records


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("seed", range(12))
def test_long_interleaved_logs_give_what_the_model_gives(seed: int) -> None:
    rng = random.Random(seed)
    rules = AssemblySettings(timeout_ms=60_000, grace_ms=5_000, max_events=35)
    records = long_log(rng)
    expected = expected_outcome(expected_sessions(records, rules))
    cuts = [rng.randrange(len(records)) for _ in range(seed)]
    assert assembled(cut(records, cuts), rules) == expected
    assert len(expected.sessions) > 100
    assert {letter.reason for letter in expected.letters} >= {"no_start", "malformed", "timed_out"}


def test_a_source_read_only_from_headers_gives_what_the_model_gives() -> None:
    rules = AssemblySettings(type_path=None, key_path=None, timeout_ms=60, grace_ms=20)
    rng = random.Random(3)
    records = [
        Record(
            0,
            offset,
            1000 + offset * rng.choice([1, 2]),
            rng.choice(["x", "y", b"\xff", None, "", "a\0"]),
            rng.choice([b'{"a":1}', b" {} ", b"{", None]) if rng.random() < 0.3 else b'{"b":2}',
            rng.choice(["start_event", "entry_event", "end_event", "end_event", None, "other"]),
            rng.choice(["1", "2", "3", "4", "5", "6", None]),
        )
        for offset in range(600)
    ]
    expected = expected_outcome(expected_sessions(records, rules, event_ids_in_header=True))
    got = assembled(cut(records, [100, 101, 350]), rules, event_ids_in_header=True)
    assert got == expected
    assert expected.sessions
    assert expected.duplicates
