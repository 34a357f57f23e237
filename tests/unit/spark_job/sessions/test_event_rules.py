"""One rule of the assembler each. Every log runs in one batch and cut after each record: both must agree."""

from dataclasses import replace

import numpy as np
import orjson
import pyarrow as pa
import pytest

from spark_job.sessions.assembler import assemble
from spark_job.sessions.session import to_session
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference.assembled import Outcome, assembled, expected_outcome, table
from tests.support.reference.model import Record, expected_sessions

RULES = AssemblySettings(timeout_ms=1000, grace_ms=100, max_events=4, max_bytes=2000)


def record(offset: int, kind: str, ts: int, key: str = "k", source: int = 0, **body: object) -> Record:
    value = {"event_type": f"{kind}_event", "session_key": key, **body}
    return Record(source, offset, ts, key, orjson.dumps(value))


def outcome(records: list[Record], rules: AssemblySettings = RULES) -> Outcome:
    at_once = assembled([records], rules)
    one_by_one = assembled([[record] for record in records], rules)
    assert at_once == one_by_one
    return at_once


def letters(found: Outcome) -> list[tuple[str, int, int, int]]:
    return [(item.reason, item.first_offset, item.last_offset, item.closing_offset) for item in found.letters]


def spans(found: Outcome) -> list[tuple[int, int]]:
    return [(session.start_offset, session.end_offset) for session in found.sessions]


def opened(found: Outcome) -> list[tuple[str, int]]:
    return [(key, start) for _, key, start, *_ in found.open]


@pytest.mark.guarantee(1)
def test_start_entries_and_end_are_one_session() -> None:
    found = outcome([record(4, "start", 10), record(6, "entry", 11), record(9, "end", 12)])
    assert spans(found) == [(4, 9)]
    assert [event.offset for event in found.sessions[0].events] == [4, 6, 9]
    assert (found.open, found.letters) == ([], [])


@pytest.mark.guarantee(2)
def test_several_sessions_of_one_key_close_in_one_batch() -> None:
    log = [
        record(offset, kind, offset) for offset, kind in enumerate(["start", "end", "start", "entry", "end"])
    ]
    result = assemble(OpenState.empty(), table(log, RULES), RULES)
    assert [(session.start_offset, session.end_offset) for session in result.closed] == [(0, 1), (2, 4)]
    assert result.counts.per_event == 0


@pytest.mark.guarantee(146, 147)
def test_the_same_key_in_two_partitions_is_two_sessions() -> None:
    found = outcome([record(0, "start", 1), record(0, "start", 2, source=1), record(1, "end", 3, source=1)])
    assert [(session.source, session.start_offset) for session in found.sessions] == [(1, 0)]
    assert [source for source, *_ in found.open] == [0]


@pytest.mark.guarantee(7, 147)
@pytest.mark.parametrize("kind", ["entry", "end"])
def test_an_event_without_an_open_session_is_a_letter_closing_at_itself(kind: str) -> None:
    found = outcome([record(0, "start", 1), record(1, "end", 2), record(2, kind, 3)])
    assert letters(found) == [("no_start", 2, 2, 2)]
    assert spans(found) == [(0, 1)]


@pytest.mark.guarantee(8)
def test_a_start_with_the_first_ones_bytes_is_dropped_and_counted() -> None:
    found = outcome(
        [record(0, "start", 1), record(1, "entry", 2), record(2, "start", 3), record(3, "end", 4)]
    )
    assert spans(found) == [(0, 3)]
    assert [event.offset for event in found.sessions[0].events] == [0, 1, 3]
    assert (found.duplicates, found.letters) == (1, [])


@pytest.mark.guarantee(8)
def test_another_start_restarts_the_session_closing_at_the_new_start() -> None:
    found = outcome(
        [record(0, "start", 1), record(1, "entry", 2), record(2, "start", 3, n=2), record(3, "end", 4)]
    )
    assert letters(found) == [("restarted", 0, 1, 2)]
    assert spans(found) == [(2, 3)]


@pytest.mark.guarantee(9)
def test_an_event_id_seen_in_the_session_is_dropped_wherever_batches_are_cut() -> None:
    rules = replace(RULES, event_id_path=("id",))
    log = [
        record(0, "start", 1, id="a"),
        record(1, "entry", 2, id="b"),
        record(2, "entry", 3, id="b", n=1),
        record(3, "start", 4, id="a", n=1),
        record(4, "end", 5, id="c"),
        record(5, "start", 6, id="a"),
        record(6, "end", 7, id="b"),
    ]
    found = outcome(log, rules)
    assert [[event.offset for event in session.events] for session in found.sessions] == [[0, 1, 4], [5, 6]]
    assert (found.duplicates, found.letters) == (2, [])


@pytest.mark.parametrize(("version", "ended"), [(2, [(0, 2), (4, 7)]), (1, [(0, 7)])])
def test_a_start_or_an_end_with_the_id_of_an_entry_is_no_duplicate(
    version: int, ended: list[tuple[int, int]]
) -> None:
    """By rules 1 it was one, which a generation of theirs still says."""
    rules = replace(RULES, event_id_path=("id",), rules_version=version)
    events = [("start", "x"), ("entry", "y"), ("end", "y"), ("entry", "y")]
    events += [("start", "x"), ("entry", "z"), ("entry", "z"), ("end", "w")]
    found = outcome([record(n, kind, n, id=event_id) for n, (kind, event_id) in enumerate(events)], rules)
    assert spans(found) == ended


@pytest.mark.guarantee(154)
def test_a_duplicate_that_nothing_marks_is_an_event_like_any_other() -> None:
    found = outcome(
        [record(0, "start", 1), record(1, "entry", 2), record(2, "entry", 2), record(3, "end", 3)]
    )
    assert [event.offset for event in found.sessions[0].events] == [0, 1, 2, 3]
    assert found.duplicates == 0


def test_a_dropped_duplicate_still_extends_the_session() -> None:
    found = outcome([record(0, "start", 0), record(1, "start", 900), record(2, "end", 1800)])
    assert spans(found) == [(0, 2)]
    foreign = record(2, "start", 1900, key="other")
    assert outcome([record(0, "start", 0), record(1, "start", 900), foreign]).letters == []


@pytest.mark.guarantee(10)
def test_an_own_event_after_the_timeout_ends_the_session_and_is_judged_anew() -> None:
    found = outcome([record(0, "start", 0), record(1, "entry", 5), record(2, "end", 1006)])
    assert letters(found) == [("timed_out", 0, 1, 2), ("no_start", 2, 2, 2)]
    assert outcome([record(0, "start", 0), record(1, "entry", 5), record(2, "end", 1005)]).letters == []


@pytest.mark.guarantee(10)
def test_the_sessions_greatest_time_counts_not_its_last() -> None:
    found = outcome(
        [record(0, "start", 0), record(1, "entry", 800), record(2, "entry", 10), record(3, "end", 1800)]
    )
    assert spans(found) == [(0, 3)]


@pytest.mark.guarantee(10)
def test_a_start_after_the_timeout_is_no_duplicate_of_the_old_one() -> None:
    found = outcome([record(0, "start", 0), record(1, "start", 1001), record(2, "end", 1002)])
    assert letters(found) == [("timed_out", 0, 0, 1)]
    assert spans(found) == [(1, 2)]


@pytest.mark.guarantee(11)
def test_silence_shown_by_two_other_keys_ends_the_session() -> None:
    log = [record(0, "start", 0), record(1, "start", 1100, key="b"), record(2, "end", 1100, key="b")]
    assert letters(outcome(log)) == []
    late = [record(3, "start", 1101, key="c"), record(4, "entry", 1102, key="c")]
    assert letters(outcome([*log, *late])) == []
    found = outcome([*log, *late, record(5, "start", 1101, key="d"), record(6, "end", 3)])
    assert letters(found) == [("timed_out", 0, 0, 5), ("no_start", 6, 6, 6)]


@pytest.mark.guarantee(11)
def test_no_single_key_can_move_the_clock_however_many_records_it_sends() -> None:
    healthy = [f"user-{number}" for number in range(20)]
    log, sent = [], 0
    for step in range(200):
        log.append(record(sent, "start" if step % 3 == 0 else "entry", step + 3_480_000, key="hostile"))
        kind = "start" if step < 20 else "end" if step >= 180 else "entry"
        log.append(record(sent + 1, kind, step, key=healthy[step % 20]))
        sent += 2
    rules = AssemblySettings(timeout_ms=1_000, grace_ms=100)
    found = assembled([log[:77], log[77:78], log[78:]], rules)
    assert found == expected_outcome(expected_sessions(log, rules))
    assert {session.key for session in found.sessions} == set(healthy)
    assert not [letter for letter in found.letters if letter.key != "hostile"]
    # By the first rules one record was enough.
    before = assembled([log], replace(rules, rules_version=1))
    assert {letter.reason for letter in before.letters if letter.key != "hostile"} == {
        "timed_out",
        "no_start",
    }


BY_RECORD = AssemblySettings(timeout_ms=1_000, grace_ms=100)
BY_FIELD = replace(BY_RECORD, time_path=("at",), time_format="epoch_ms")


def stamped(offset: int, kind: str, at: int, broker_ms: int, key: str) -> Record:
    """An event in a topic with LogAppendTime."""
    value = orjson.dumps({"event_type": f"{kind}_event", "session_key": key, "at": at})
    return Record(0, offset, broker_ms, None, value, by_broker=True)


@pytest.mark.guarantee(11)
@pytest.mark.parametrize(
    ("rules", "silenced"),
    [(BY_FIELD, []), (BY_RECORD, ["timed_out"]), (replace(BY_FIELD, rules_version=2), ["timed_out"])],
    ids=["a field's time", "the broker's time", "by the rules before"],
)
def test_a_single_record_shows_silence_only_where_its_event_has_the_time_that_the_broker_has_set(
    rules: AssemblySettings, silenced: list[str]
) -> None:
    """Else one key would end all sessions that come late by their events' times."""
    behind = 0 if rules.time_path is None else 3_600_000
    log = [stamped(0, "start", 9_000_000 - behind, 9_000_000, "late")]
    log.append(stamped(1, "start", 9_000_000 + 1_101, 9_000_000 + 1_101, "present"))
    found = assembled([log[:1], log[1:]], rules)
    assert [letter.reason for letter in found.letters] == silenced
    assert found == expected_outcome(expected_sessions(log, rules))
    log += [stamped(2, "start", 9_002_000, 9_002_000, "another")]
    assert letters(assembled([log], rules))[0][:2] == ("timed_out", 0)


@pytest.mark.guarantee(11)
def test_a_time_that_the_broker_has_set_holds_back_what_two_events_say() -> None:
    log = [
        stamped(0, "start", 5_000, 5_000, "k"),
        *(stamped(at, "start", 3_485_000, 5_000 + at, f"ahead {at}") for at in (1, 2)),
    ]
    assert not assembled([[*log, stamped(3, "end", 5_010, 5_010, "k")]], BY_FIELD).letters
    log += [stamped(at, "start", 6_098 + at, 6_098 + at, f"{at}") for at in (3, 4)]
    late = assembled([log], BY_FIELD)
    assert letters(late) == [("timed_out", 0, 0, 4)]
    assert late == expected_outcome(expected_sessions(log, BY_FIELD))


@pytest.mark.guarantee(11)
def test_silence_of_a_session_that_is_not_touched_any_more_is_noticed() -> None:
    log = [record(0, "start", 0), record(1, "start", 2000, key="b"), record(2, "end", 2001, key="b")]
    log += [record(3, "start", 2002, key="c"), record(4, "end", 2002, key="c")]
    found = outcome(log)
    assert letters(found) == [("timed_out", 0, 0, 3)]
    assert found.open == []


@pytest.mark.guarantee(11, 153)
def test_records_of_any_two_other_keys_of_the_partition_show_the_silence() -> None:
    own = [record(0, "start", 0), record(3, "end", 5)]
    fast = [record(1, "start", 2000, key="b"), record(2, "start", 2000, key="c")]
    assert spans(outcome(own)) == [(0, 3)]
    together = outcome([own[0], *fast, own[1]])
    assert letters(together) == [("timed_out", 0, 0, 2), ("no_start", 3, 3, 3)]


@pytest.mark.guarantee(12)
def test_another_partitions_clock_never_ends_a_session() -> None:
    other = [
        record(offset, kind, 10**9 + offset, key="b", source=1)
        for offset, kind in enumerate(["start", "end"])
    ]
    found = outcome([record(0, "start", 0), *other, record(1, "end", 1)])
    assert spans(found) == [(0, 1), (0, 1)]
    assert found.letters == []


@pytest.mark.guarantee(12)
def test_records_from_before_the_session_never_end_it() -> None:
    log = [
        record(0, "start", 10**9, key="b"),
        record(1, "start", 0),
        record(2, "entry", 1),
        record(3, "end", 2),
    ]
    found = outcome(log)
    assert spans(found) == [(1, 3)]
    assert found.letters == []
    assert opened(found) == [("b", 0)]


@pytest.mark.guarantee(12, 152)
def test_the_wall_clock_never_ends_a_session() -> None:
    found = outcome([record(0, "start", 0), record(1, "entry", 1)])
    assert opened(found) == [("k", 0)]
    before = assemble(OpenState.empty(), table([record(0, "start", 0)], RULES), RULES).state
    result = assemble(before, table([], RULES), RULES)
    assert result.state is before
    assert (result.closed, result.letters) == ([], [])


@pytest.mark.guarantee(12)
def test_a_malformed_record_ticks_no_clock_and_belongs_to_no_key() -> None:
    junk = Record(0, 1, 10**9, "k", b'{"event_type":"start_event","session_key":"k"')
    # The other partition's time is as late, so that the clock is looked at in any case.
    other = record(0, "start", 10**9, key="b", source=1)
    found = outcome([record(0, "start", 0), junk, other, record(2, "end", 1)])
    assert spans(found) == [(0, 2)]
    assert letters(found) == [("malformed", 1, 1, 1)]


EMITTED = replace(RULES, on_timeout="emit")


def ended(found: Outcome) -> list[tuple[int, int, int, int, str]]:
    """(start, end, last with dropped duplicates, closing, what ended it) of each session."""
    return [
        (each.start_offset, each.end_offset, each.last_offset, each.closing_offset, each.ended_by)
        for each in found.sessions
    ]


@pytest.mark.guarantee(10)
def test_a_session_that_its_keys_next_event_ends_is_emitted_and_the_event_is_judged_anew() -> None:
    log = [
        record(0, "start", 0),
        record(1, "entry", 10),
        record(4, "entry", 1_011),
        record(5, "start", 1_012),
    ]
    found = outcome(log, EMITTED)
    assert ended(found) == [(0, 1, 1, 4, "timeout")]
    assert letters(found) == [("no_start", 4, 4, 4)]
    assert opened(found) == [("k", 5)]
    assert [event.offset for event in found.sessions[0].events] == [0, 1]


@pytest.mark.guarantee(11)
def test_a_session_that_fell_silent_is_emitted_where_the_clock_has_shown_it() -> None:
    log = [record(0, "start", 0), record(1, "entry", 10), record(3, "start", 1_111, key="b")]
    assert ended(outcome(log, EMITTED)) == []
    found = outcome([*log, record(7, "start", 1_112, key="c")], EMITTED)
    assert ended(found) == [(0, 1, 1, 7, "timeout")]
    assert found.letters == []


@pytest.mark.guarantee(10)
def test_the_last_event_of_an_emitted_session_is_none_that_was_dropped() -> None:
    rules = replace(EMITTED, event_id_path=("id",))
    log = [record(0, "start", 0, id="a"), record(1, "entry", 10, id="b"), record(2, "entry", 20, id="b")]
    found = outcome([*log, record(3, "start", 1_021, id="c")], rules)
    assert ended(found) == [(0, 1, 2, 3, "timeout")]
    assert found.duplicates == 1


def test_an_ended_session_says_so_and_a_tombstone_is_not_emitted() -> None:
    log = [record(0, "start", 0), record(1, "end", 10)]
    assert ended(outcome(log, EMITTED)) == [(0, 1, 1, 1, "end")]
    found = outcome([*LARGE, record(7, "start", 2_000, n=8), record(8, "end", 2_000)], EMITTED)
    assert ended(found) == [(7, 8, 8, 8, "end")]
    assert letters(found) == [("too_large", 0, 4, 4)]


ANY = replace(EMITTED, start="", entry="*")
SILENT = replace(ANY, end="")


def types(found: Outcome) -> list[list[str]]:
    return [[event.type for event in each.events] for each in found.sessions]


@pytest.mark.guarantee(1)
def test_without_a_start_any_event_opens_a_session_and_an_end_closes_it() -> None:
    log = [record(0, "click", 0), record(1, "scroll", 1), record(2, "end", 2), record(3, "end", 3)]
    found = outcome([*log, record(4, "click", 4)], ANY)
    assert ended(found) == [(0, 2, 2, 2, "end"), (3, 3, 3, 3, "end")]
    assert types(found) == [["click_event", "scroll_event", "end_event"], ["end_event"]]
    assert opened(found) == [("k", 4)]
    assert found.letters == []


@pytest.mark.guarantee(10, 11)
def test_without_an_end_only_the_timeout_closes_a_session() -> None:
    log = [record(0, "start", 0), record(1, "end", 900), record(2, "start", 1_901), record(3, "start", 1_902)]
    found = outcome(log, SILENT)
    assert ended(found) == [(0, 1, 1, 2, "timeout")]
    assert opened(found) == [("k", 2)]
    later = [record(4, "x", 3_010, key="b"), record(5, "x", 3_011, key="c")]
    assert ended(outcome([*log, *later], SILENT)) == [(0, 1, 1, 2, "timeout"), (2, 3, 3, 5, "timeout")]


@pytest.mark.guarantee(8)
def test_with_a_start_and_no_end_another_start_still_restarts_the_session() -> None:
    rules = replace(EMITTED, end="", entry=("end_event", "entry_event"))
    log = [record(0, "entry", 0), record(1, "start", 1), record(2, "end", 2), record(3, "start", 3, n=1)]
    found = outcome(log, rules)
    assert letters(found) == [("no_start", 0, 0, 0), ("restarted", 1, 2, 3)]
    assert opened(found) == [("k", 3)]


def parts(found: Outcome) -> list[tuple[list[int], int, str, int]]:
    """(offsets, number, what ended it, closing) of each part."""
    return [
        ([event.offset for event in each.events], each.part, each.ended_by, each.closing_offset)
        for each in found.sessions
    ]


@pytest.mark.guarantee(14)
def test_where_only_silence_ends_sessions_a_limit_closes_parts() -> None:
    log = [record(at, "x", at) for at in range(9)]
    late = record(9, "x", 2_000)
    found = outcome([*log, late], SILENT)
    assert parts(found) == [
        ([0, 1, 2, 3], 1, "limit", 4),
        ([4, 5, 6, 7], 2, "limit", 8),
        ([8], 3, "timeout", 9),
    ]
    assert found.letters == []
    assert [session[2:4] + session[-1:] for session in found.open] == [(9, 9, 1)]
    large = [record(at, "x", at, fill="x" * 900) for at in range(3)]
    assert parts(outcome(large, SILENT)) == [([0, 1], 1, "limit", 2)]


def test_a_part_keeps_the_greatest_time_of_its_session() -> None:
    """Or a late event at its beginning would end the session."""
    log = [record(at, "x", 2_000) for at in range(4)]
    log += [record(4, "x", 100), record(5, "x", 2_900), record(6, "x", 3_901)]
    found = outcome(log, SILENT)
    assert parts(found) == [([0, 1, 2, 3], 1, "limit", 4), ([4, 5], 2, "timeout", 6)]


def test_an_event_that_is_larger_than_a_part_may_be_ends_the_session() -> None:
    log = [record(0, "x", 0), record(1, "x", 1, fill="x" * 2_000), record(2, "x", 2)]
    found = outcome(log, SILENT)
    assert parts(found) == [([0], 1, "limit", 1)]
    assert letters(found) == [("too_large", 1, 1, 1)]
    assert found.swallowed == 1


@pytest.mark.parametrize("named", [{"start": "start_event"}, {"end": "end_event"}])
def test_a_session_that_an_event_begins_or_ends_has_no_parts(named: dict[str, str]) -> None:
    rules = replace(SILENT, start=named.get("start", ""), end=named.get("end", ""))
    found = outcome([record(0, "start", 0), *[record(at, "entry", at) for at in range(1, 6)]], rules)
    assert letters(found) == [("too_large", 0, 4, 4)]
    assert found.sessions == []


def test_later_parts_are_found_again_though_their_session_began_before_the_safe_offset() -> None:
    """Amid another part the events would make other parts, from 1 on: so the position remembers where the open one begins."""
    log = [
        record(0, "x", 0),
        record(1, "x", 1),
        record(2, "x", 2, "b"),
        *[record(at, "x", at) for at in range(3, 8)],
    ]
    state = assemble(OpenState.empty(), table(log, SILENT), SILENT).state
    assert (state.safe_offset, state.sessions.part.tolist()) == (2, [1, 2])
    again = assemble(OpenState.awaiting(state.remembered), table(log[2:], SILENT), SILENT).state
    assert again.with_remembered(state.remembered).digest == state.digest
    assert OpenState.decoded(memoryview(state.encoded), state.chunks).digest == state.digest


@pytest.mark.parametrize(
    ("rules", "kinds"), [(SILENT, ["x"] * 7), (RULES, ["start", *["entry"] * 5])], ids=["part", "tombstone"]
)
def test_a_position_names_sessions_over_a_limit_and_never_who_sent_the_last_record(
    rules: AssemblySettings, kinds: list[str]
) -> None:
    log = [record(at, kind, at) for at, kind in enumerate(kinds)]
    log += [record(20, kinds[0], 20, "uninvolved"), *[record(21, "end", 21, "uninvolved")] * (rules is RULES)]
    state = assemble(OpenState.empty(), table(log, rules), rules).state
    assert state.last is not None
    assert state.live.remembered.key.to_pylist() == ["k"]
    assert b"k" in state.remembered
    assert b"uninvolved" not in state.remembered
    assert b"uninvolved" not in OpenState.of(state.sessions.take(np.array([0])), last=state.last).encoded
    again = OpenState.awaiting(state.remembered)
    if state.safe_offset is not None:
        begun = [each for each in log if each.offset >= state.safe_offset]
        again = assemble(again, table(begun, rules), rules).state
    again = again.with_remembered(state.remembered)
    assert (again.digest, again.remembered) == (state.digest, state.remembered)


def test_a_part_whose_beginning_kafka_has_lost_begins_with_what_is_left_and_one_without_events_is_forgotten() -> (
    None
):
    log = [record(at, "x", at) for at in range(7)]
    state = assemble(OpenState.empty(), table(log, SILENT), SILENT).state
    left = assemble(OpenState.awaiting(state.remembered), table(log[5:], SILENT), SILENT).state
    found = left.with_remembered(state.remembered, keep_own=True).sessions
    assert (found.start.tolist(), found.part.tolist(), found.rows.tolist()) == ([5], [2], [2])
    nothing = OpenState.awaiting(state.remembered).with_remembered(state.remembered, keep_own=True)
    assert len(nothing.sessions) == 0


def test_an_ended_session_of_which_nothing_marks_the_start_leaves_a_tombstone() -> None:
    """Or what comes of it would be a session, and a rebuild would find another one."""
    fill = "x" * 100
    log = [record(0, "a", 0, fill=fill), record(1, "a", 1, "m", fill=fill), record(2, "a", 2)]
    size = sum(len(each.value or b"") for each in log)
    rules = replace(ANY, max_open_bytes=size - 1)
    found = outcome([*log, record(3, "a", 3), record(4, "a", 4, "m")], rules)
    assert letters(found) == [("too_large", 0, 2, 2)]
    assert opened(found) == [("k", 0), ("m", 1)]
    assert found.swallowed == 1
    assert found == expected_outcome(
        expected_sessions([*log, record(3, "a", 3), record(4, "a", 4, "m")], rules)
    )


@pytest.mark.parametrize("path", [("event_type",), None])
def test_entries_have_the_types_that_they_came_with(path: tuple[str, ...] | None) -> None:
    rules = replace(RULES, entry=("buy", "look"), type_path=path)
    kinds = ["start_event", "look", "buy", "look", "other", "end_event"]
    log = [
        Record(0, at, at, "k", orjson.dumps({"event_type": kind, "session_key": "k", "n": at}), kind)
        for at, kind in enumerate(kinds)
    ]
    rules = replace(rules, max_events=9)
    found = outcome(log, rules)
    assert types(found) == [["start_event", "look", "buy", "look", "end_event"]]
    assert letters(found) == [("malformed", 4, 4, 4)]
    assert found == expected_outcome(expected_sessions(log, rules))


def test_a_type_of_over_a_kilobyte_is_no_entry_and_neither_is_a_record_without_one() -> None:
    values: list[dict[str, str | None]] = [
        {"event_type": "a" * 1_025},
        {"event_type": "a" * 1_024},
        {"event_type": ""},
        {},
        {"event_type": None},
    ]
    log = [
        Record(0, at, at, "k", orjson.dumps(value | {"session_key": "k"})) for at, value in enumerate(values)
    ]
    result = assemble(OpenState.empty(), table(log, SILENT), SILENT)
    assert [each.detail for each in result.letters] == [
        "its type has over 1024 bytes",
        "no readable field event_type",
        "no readable field event_type",
    ]
    assert result.state.sessions.rows.tolist() == [2]


LARGE = [record(offset, kind, offset, n=offset) for offset, kind in enumerate(["start", *["entry"] * 6])]


@pytest.mark.guarantee(14)
def test_a_session_over_the_limit_is_a_letter_with_the_events_up_to_it() -> None:
    found = outcome(LARGE)
    assert letters(found) == [("too_large", 0, 4, 4)]
    assert [offset for offset, _, _ in found.letters[0].events] == [0, 1, 2, 3]
    assert found.letters[0].n_events == 5
    assert found.swallowed == 2


@pytest.mark.guarantee(14)
def test_a_session_over_the_byte_limit_is_a_letter_too() -> None:
    big = record(1, "entry", 1, text="x" * 2000)
    assert letters(outcome([record(0, "start", 0), big, record(2, "end", 2)])) == [("too_large", 0, 1, 1)]
    alone = outcome([record(0, "start", 0, text="x" * 2000), record(1, "entry", 1), record(2, "end", 2)])
    assert letters(alone) == [("too_large", 0, 0, 0)]
    assert alone.open == []
    assert alone.letters[0].events == ()


def test_bytes_add_up_over_batches() -> None:
    log = [record(0, "start", 0), *[record(at, "entry", at, text="x" * 900) for at in (1, 2, 3)]]
    assert letters(outcome(log, replace(RULES, max_events=99))) == [("too_large", 0, 3, 3)]


@pytest.mark.guarantee(20)
def test_a_tombstone_does_not_pin_the_safe_offset() -> None:
    state = assemble(OpenState.empty(), table(LARGE, RULES), RULES).state
    assert (state.safe_offset, len(state.sessions), len(state.tombstones)) == (None, 1, 1)
    later = assemble(state, table([record(7, "start", 8, key="b")], RULES), RULES).state
    assert (later.safe_offset, len(later.sessions), len(later.tombstones)) == (7, 2, 1)


@pytest.mark.guarantee(14)
def test_a_tombstone_stays_small_whatever_it_swallows() -> None:
    state = OpenState.empty()
    for offset in range(0, 4000, 400):
        kinds = ["start" if at == 0 else "entry" for at in range(offset, offset + 400)]
        log = [record(offset + at, kind, offset + at, pad="x" * 30) for at, kind in enumerate(kinds)]
        state = assemble(state, table(log, RULES), RULES).state
        assert len(state.tombstones) == 1
        assert len(state.sessions.encoded) < 500
        assert not state.chunks


@pytest.mark.guarantee(8)
def test_a_tombstone_swallows_its_start_once_more_and_ends_by_the_end() -> None:
    found = outcome([*LARGE, record(7, "start", 8, n=0), record(8, "end", 9), record(9, "entry", 10)])
    assert letters(found) == [("too_large", 0, 4, 4), ("no_start", 9, 9, 9)]
    assert (found.open, found.swallowed) == ([], 4)


@pytest.mark.guarantee(14)
def test_a_tombstone_ends_by_another_start_without_a_second_letter() -> None:
    found = outcome([*LARGE, record(7, "start", 8, n=7), record(8, "end", 9)])
    assert letters(found) == [("too_large", 0, 4, 4)]
    assert spans(found) == [(7, 8)]


@pytest.mark.guarantee(14)
def test_a_tombstone_ends_by_the_timeout_without_a_second_letter() -> None:
    assert letters(outcome([*LARGE, record(7, "end", 1007)])) == [
        ("too_large", 0, 4, 4),
        ("no_start", 7, 7, 7),
    ]
    silent = outcome([*LARGE, record(7, "start", 2000, key="b"), record(8, "start", 2000, key="c")])
    assert letters(silent) == [("too_large", 0, 4, 4)]
    assert opened(silent) == [("b", 7), ("c", 8)]


def test_an_end_over_the_limit_leaves_no_tombstone() -> None:
    found = outcome([*LARGE[:4], record(4, "end", 4), record(5, "end", 5)])
    assert letters(found) == [("too_large", 0, 4, 4), ("no_start", 5, 5, 5)]


def test_a_limit_that_was_lowered_meanwhile_holds_for_what_is_open_already() -> None:
    open_now = assemble(OpenState.empty(), table(LARGE[:4], RULES), RULES).state
    lowered = replace(RULES, max_events=2)
    result = assemble(open_now, table(LARGE[4:], lowered), lowered)
    assert [(letter.reason, letter.closing_offset, letter.n_events) for letter in result.letters] == [
        ("too_large", 4, 5)
    ]
    assert (len(result.state.tombstones), result.counts.swallowed) == (1, 2)


@pytest.mark.parametrize(("again_at", "ended"), [(None, ["k"]), (1, ["k"]), (3, ["k", "m"])])
def test_over_the_bound_no_start_that_was_sent_again_is_left_behind_one_that_stays(
    again_at: int | None, ended: list[str]
) -> None:
    """A rebuild from there on would take it for the first one. k's start is at 0, m's at 2, o's at 4."""
    log = [record(0, "start", 0), record(2, "start", 0, "m"), record(4, "start", 0, "o")]
    log += [] if again_at is None else [record(again_at, "start", 0)]
    log = [*sorted(log, key=lambda each: each.offset), record(5, "entry", 0, "o", fill="x" * 100)]
    size = sum(len(each.value or b"") for each in log if each.offset != again_at)
    rules = replace(RULES, max_open_bytes=size - 1)
    found = outcome(log, rules)
    assert [letter.key for letter in found.letters] == ended
    assert found == expected_outcome(expected_sessions(log, rules))


@pytest.mark.guarantee(16)
def test_keys_count_against_the_bound_as_values_do() -> None:
    log = [record(at, "start", at, f"{at:02}".ljust(1_000, "k")) for at in range(20)]
    size = 1_000 + len(log[0].value or b"")
    rules = replace(RULES, max_open_bytes=5 * size)
    found = outcome(log, rules)
    assert [at for _, at in opened(found)] == list(range(16, 20))
    assert found == expected_outcome(expected_sessions(log, rules))


def test_clean_keys_never_take_the_per_event_path() -> None:
    log = [
        record(10 * number + at, kind, 100_000 * (number // 3) + 10 * number + at, key=f"k{number}")
        for number in range(30)
        for at, kind in enumerate(["start", "entry", "end"])
    ]
    result = assemble(OpenState.empty(), table(log, RULES), RULES)
    assert (len(result.closed), result.counts.per_event) == (30, 0)


def test_offsets_of_any_size_keep_their_order() -> None:
    offsets = [0, 2**31, 2**62, 2**63 - 2]
    log = [record(at, kind, 1) for at, kind in zip(offsets, ["start", "end", "start", "end"], strict=True)]
    others = [1, 2**31 + 1, 2**62 + 1]
    log += [record(at, kind, 1, key="b") for at, kind in zip(others, ["start", "entry", "end"], strict=True)]
    log.sort(key=lambda item: item.offset)
    result = assemble(OpenState.empty(), table(log, RULES), RULES)
    found = [(item.key, item.start_offset, item.end_offset) for item in result.closed]
    assert found == [("k", 0, 2**31), ("b", 1, 2**62 + 1), ("k", 2**62, 2**63 - 2)]
    assert result.letters == []


def test_two_events_at_the_two_ends_of_time_are_a_timeout_and_no_overflow() -> None:
    first, last = -62_135_596_800_000, 253_402_300_799_999
    others = [record(1, "start", last, key="b"), record(2, "start", last, key="c")]
    found = outcome([record(0, "start", first), *others, record(3, "end", last)])
    assert letters(found) == [("timed_out", 0, 0, 2), ("no_start", 3, 3, 3)]


@pytest.mark.guarantee(5)
def test_the_public_session_is_the_log_word_for_word() -> None:
    log = [record(5, "start", 10, text="é"), record(6, "entry", 1_700_000_000_123), record(8, "end", 12)]
    rules = replace(RULES, timeout_ms=2 * 10**12)
    closed = assemble(OpenState.empty(), table(log, rules), rules).closed[0]
    session = to_session(closed, "clicks", 3)
    assert (session.key, session.start, session.end) == ("k", ("clicks", 3, 5), ("clicks", 3, 8))
    assert [event.raw for event in session.events] == [item.value for item in log]
    assert [event.value["event_type"] for event in session.events] == closed.types()
    assert session.events[1].timestamp.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (session.started_at.isoformat(), len(session.events)) == ("1970-01-01T00:00:00.010000+00:00", 3)
    assert session.events[0] is session.events[0]
    assert session.events[-1:] == [session.events[2]]


def test_arguments_are_left_as_they_were_and_answers_repeat() -> None:
    before = assemble(OpenState.empty(), table(LARGE[:3], RULES), RULES).state
    encoded = [before.sessions.encoded, *(chunk.encoded() for chunk in before.chunks)]
    new = table([*LARGE[3:], record(7, "entry", 5000)], RULES)
    copy = pa.table(
        {
            name: pa.array(new.column(name).to_pylist(), new.schema.field(name).type)
            for name in new.column_names
        }
    )
    first, second = (assemble(before, new, RULES) for _ in range(2))
    assert first.letters == second.letters
    assert first.state.digest == second.state.digest
    assert new.equals(copy)
    again = before.sessions.changed(np.ones(len(before.sessions), bool))  # encoded anew
    assert [again.encoded, *(chunk.encoded() for chunk in before.chunks)] == encoded
