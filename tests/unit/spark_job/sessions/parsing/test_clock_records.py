"""A clock record is no event. It shows silence as one record of a key that no other record has (docs/decisions/0047)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import orjson
import pytest

from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import InputSchemaError
from spark_job.sessions.settings import MAX_TS_MS, AssemblySettings, Format
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference.assembled import Outcome, assembled, expected_outcome, table
from tests.support.reference.kept import reread
from tests.support.reference.model import Record, expected_sessions

RULES = AssemblySettings(timeout_ms=60, grace_ms=20, on_timeout="emit", clock_records=True)
TEN_YEARS_MS = 315_360_000_000


def event(offset: int, kind: str, ts: int, key: str = "a", **fields: Any) -> Record:
    return Record(
        0, offset, ts, key, orjson.dumps({"event_type": f"{kind}_event", "session_key": key}), **fields
    )


def clock_record(offset: int, ts: int, **fields: Any) -> Record:
    return Record(0, offset, ts, "outbox-clock", None, clock=b"1", **fields)


def outcome(log: Sequence[Record], rules: AssemblySettings = RULES) -> Outcome:
    """What the model says, however the log is cut."""
    expected = expected_outcome(expected_sessions(log, rules))
    for size in (1, 2, len(log)):
        assert assembled([log[at : at + size] for at in range(0, len(log), size)], rules) == expected
    return expected


OPEN = [event(0, "start", 1_000), event(1, "start", 1_000, "b"), event(2, "entry", 1_001)]


@pytest.mark.guarantee(11)
def test_two_clock_records_after_the_last_event_end_silent_sessions() -> None:
    found = outcome([*OPEN, clock_record(3, 1_100), clock_record(4, 1_110)])
    assert [(each.key, each.end_offset, each.closing_offset, each.ended_by) for each in found.sessions] == [
        ("b", 1, 4, "timeout"),
        ("a", 2, 4, "timeout"),
    ]
    assert found.letters == []
    assert found.open == []


@pytest.mark.guarantee(11)
def test_both_must_be_late() -> None:
    log = [*OPEN, clock_record(3, 1_080), clock_record(4, 1_100)]
    assert [each.key for each in outcome(log).sessions] == []
    assert [each.closing_offset for each in outcome([*log, clock_record(5, 1_101)]).sessions] == [5, 5]


@pytest.mark.guarantee(11)
def test_one_clock_record_ten_years_ahead_ends_no_session() -> None:
    log = [*OPEN, clock_record(3, 1_000 + TEN_YEARS_MS)]
    assert len(outcome(log).open) == 2
    going_on = [*log, event(4, "entry", 1_050), event(5, "end", 1_060, "b"), event(6, "end", 1_070)]
    found = outcome(going_on)
    assert [(each.key, each.ended_by) for each in found.sessions] == [("b", "end"), ("a", "end")]


@pytest.mark.guarantee(11)
def test_a_clock_record_and_an_event_agree_on_the_earlier_time_of_both() -> None:
    ahead = clock_record(3, 1_000 + TEN_YEARS_MS)
    assert outcome([*OPEN, ahead, event(4, "start", 1_079, "c")]).sessions == []
    found = outcome([*OPEN, ahead, event(4, "start", 1_082, "c")])
    assert [(each.key, each.closing_offset) for each in found.sessions] == [("b", 4), ("a", 4)]


@pytest.mark.guarantee(11)
def test_one_clock_record_is_enough_where_the_broker_has_set_its_time() -> None:
    found = outcome([*OPEN, clock_record(3, 1_100, by_broker=True)])
    assert [(each.key, each.closing_offset) for each in found.sessions] == [("b", 3), ("a", 3)]


@pytest.mark.guarantee(11)
def test_clock_records_before_a_session_say_nothing_of_it() -> None:
    early = [clock_record(at, 9_000 + at, by_broker=at == 2) for at in range(3)]
    assert len(outcome([*early, event(3, "start", 1_000), event(4, "entry", 1_010)]).open) == 1


@pytest.mark.guarantee(12)
def test_it_is_no_event_and_leaves_no_letter_and_no_count() -> None:
    log = [clock_record(0, 1_000), *(replace(each, offset=each.offset + 1) for each in OPEN)]
    done = assemble(OpenState.empty(), table(log, RULES), RULES)
    assert done.letters == []
    assert (done.counts.events, done.counts.malformed) == (3, 0)
    alone = assemble(done.state, table([clock_record(9, 1_002)], RULES), RULES)
    assert (alone.counts.events, alone.counts.per_event, alone.closed, alone.letters) == (0, 0, [], [])


@pytest.mark.guarantee(13)
@pytest.mark.parametrize(
    "given",
    [
        replace(clock_record(3, 1_100), clock=b"2"),
        replace(clock_record(3, 1_100), clock=b""),
        replace(clock_record(3, 1_100), clock=None),
        replace(clock_record(3, 1_100), value=b""),
        clock_record(3, MAX_TS_MS + 1),
    ],
    ids=["another mark", "an empty mark", "no mark", "a value", "no time"],
)
def test_a_record_that_is_none_is_malformed(given: Record) -> None:
    found = outcome([*OPEN, given, event(4, "start", 1_200, "c")])
    assert [each.reason for each in found.letters] == ["malformed"]
    assert found.sessions == []


def test_an_event_with_the_mark_is_an_event() -> None:
    assert len(outcome([replace(each, clock=b"1") for each in OPEN]).open) == 2


def test_without_the_setting_it_is_malformed_and_says_no_time() -> None:
    found = outcome(
        [*OPEN, clock_record(3, 1_100), clock_record(4, 1_110)], replace(RULES, clock_records=False)
    )
    assert [each.reason for each in found.letters] == ["malformed"] * 2
    assert len(found.open) == 2


@pytest.mark.guarantee(40)
def test_what_a_clock_record_says_is_found_again_with_what_is_open() -> None:
    """The last one before a batch agrees with the first one in it."""
    log = [event(0, "start", 1_000), clock_record(1, 1_100)]
    kept = assemble(OpenState.empty(), table(log, RULES), RULES).state
    without = assemble(OpenState.empty(), table(log[:1], RULES), RULES).state
    assert kept.digest != without.digest
    found = reread(assemble(without, table(log[1:], RULES), RULES).state)
    assert (found.digest, found.last) == (kept.digest, kept.last)
    restored = OpenState.decoded(memoryview(kept.encoded), kept.chunks)
    for state in (kept, found, restored):
        (closed,) = assemble(state, table([clock_record(2, 1_100)], RULES), RULES).closed
        assert closed.closing_offset == 2


def test_a_lower_bound_on_what_is_open_ends_nothing_at_a_clock_record() -> None:
    tight = replace(RULES, max_open_bytes=10)
    state = assemble(OpenState.empty(), table(OPEN, RULES), RULES).state
    quiet = assemble(state, table([clock_record(3, 1_002), clock_record(4, 1_003)], tight), tight)
    assert (quiet.letters, len(quiet.state.live)) == ([], 2)
    assert assemble(quiet.state, table([event(5, "entry", 1_004)], tight), tight).letters


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("format", get_args(Format))
def test_a_slice_of_clock_records_alone_needs_no_schema_and_no_field(format: Format, *, header: bool) -> None:
    paths: dict[str, Any] = {"type_path": None, "key_path": None} if header or format == "bytes" else {}
    plain = AssemblySettings(format=format, clock_records=True, **paths)
    log = [clock_record(at, 1_000 + at) for at in range(3)]
    done = assemble(OpenState.empty(), table(log, plain), plain)
    assert (done.closed, done.letters, done.counts.events, len(done.state.live)) == ([], [], 0, 0)


def test_the_column_must_be_there() -> None:
    with pytest.raises(InputSchemaError, match="lacks 'clock'"):
        assemble(OpenState.empty(), table(OPEN, RULES).drop_columns(["clock"]), RULES)
