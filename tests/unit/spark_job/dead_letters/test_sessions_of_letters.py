"""Which letters are sessions: exactly those whose kept events are whole, whatever the input and whatever was lost of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.formats.registry.schemas import schemas_of
from service.settings import Settings
from spark_job.api import EndedBy
from spark_job.assembly.letters import failed, part_of
from spark_job.assembly.letters import letter as row_of
from spark_job.dead_letters.refusals import refusal
from spark_job.dead_letters.sessions_of_letters import NotWholeError, session_of
from spark_job.dead_letters.store import StoredLetter
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.assembly_rules import applied_rules, stored_rules
from spark_job.outputs.transform_failures import CUT
from spark_job.sessions.assembler import assemble
from spark_job.sessions.session import to_session
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference.assembled import table
from tests.support.reference.model import Record
from tests.support.schemas.clicks import registered
from tests.support.schemas.registry import registry

PROFILE = settings(max_examples=200, derandomize=True, suppress_health_check=list(HealthCheck))
TIGHT = AssemblySettings(timeout_ms=60, grace_ms=20, max_events=4, max_bytes=700)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([*["start_event"] * 3, *["entry_event"] * 4, *["end_event"] * 3, "odd"]),
        st.sampled_from([0, 5, 5, 61, 100, -5]),
        st.sampled_from([0, 0, 0, 300, 800]),
    ),
    max_size=25,
)


def stored(
    reason: str,
    key: str | None,
    events: Sequence[tuple[int, int, bytes | None]],
    types: Sequence[str | None] | None,
    place: tuple[int, int, int],
    count: int,
    detail: str = "",
) -> StoredLetter:
    first, last, closing = place
    return StoredLetter(
        dead_letter_id=1,
        topic_id="id",
        topic="in",
        partition=0,
        first_offset=first,
        last_offset=last,
        closing_offset=closing,
        reason=reason,
        revision=0,
        generation=1,
        batch_id=1,
        session_key=key,
        detail=detail,
        event_count=count,
        event_offsets=[offset for offset, _, _ in events],
        event_times_ms=[ms for _, ms, _ in events],
        event_values=[value for _, _, value in events],
        event_types=None if types is None else list(types),
        state="open",
        resolved_batch=None,
        state_changed_at=NOW,
        created_at=NOW,
    )


def letters_of(
    steps: Sequence[tuple[str, str, int, int]], rules: AssemblySettings
) -> tuple[list[StoredLetter], dict[int, Any]]:
    """The letters of a log, those of all its sessions' failed transforms among them; {start: the session} of these."""
    records = []
    ts = 1_000
    for offset, (key, kind, elapsed, size) in enumerate(steps):
        ts += elapsed
        in_header = rules.type_path is None
        value = {"session_key": key, "n": offset, "fill": "x" * size} | (
            {} if in_header else {"event_type": kind}
        )
        records.append(Record(0, offset, ts, key, orjson.dumps(value), kind if in_header else None))
    found = assemble(OpenState.empty(), table(records, rules), rules)
    letters = [
        stored(
            letter.reason,
            letter.key,
            letter.events,
            letter.types,
            (letter.first_offset, letter.last_offset, letter.closing_offset),
            letter.n_events,
            letter.detail,
        )
        for letter in found.letters
    ]
    sessions = {}
    for closed in found.closed:
        sessions[closed.start_offset] = to_session(closed, "in", 0)
        events = list(zip(closed.offsets(), closed.timestamps_ms(), closed.raws(), strict=True))
        types = closed.types() if rules.type_path is None else None
        place = (closed.start_offset, closed.last_offset, closed.closing_offset)
        detail = failed(0, closed, ValueError("no luck"), types_in_header=False)["detail"]
        letters.append(stored("transform_failed", closed.key, events, types, place, closed.n_events, detail))
    return letters, sessions


def damaged(letter: StoredLetter, lost: frozenset[int], counted: bool) -> StoredLetter:
    """The letter without some of its events; `counted`: it still says how many there were."""
    kept = [at for at in range(len(letter.event_offsets)) if at not in lost]
    return replace(
        letter,
        event_offsets=[letter.event_offsets[at] for at in kept],
        event_times_ms=[letter.event_times_ms[at] for at in kept],
        event_values=[letter.event_values[at] for at in kept],
        event_types=None if letter.event_types is None else [letter.event_types[at] for at in kept],
        event_count=letter.event_count if counted else max(1, len(kept)),
    )


def is_whole(letter: StoredLetter, rules: AssemblySettings, *, incomplete: bool) -> bool:
    """The slow obvious model: all events are there, a start, entries, an end; or none where a session that timed out failed."""
    if letter.reason in ("malformed", "no_start") or len(letter.event_offsets) != letter.event_count:
        return False
    kinds = letter.event_types or [orjson.loads(value or b"")["event_type"] for value in letter.event_values]
    text = "".join({"start_event": "s", rules.end: "x"}.get(str(kind), "e") for kind in kinds)
    if not rules.start:
        text = "s" + text.replace("s", "e")
    if letter.event_offsets[0] != letter.first_offset or not text.startswith("s"):
        return False
    may_lack = incomplete and letter.reason in ("timed_out", "restarted")
    may_lack |= letter.reason == "transform_failed" and rules.on_timeout == "emit"
    unended = may_lack and text[1:] == "e" * (len(text) - 1)
    return unended or (text[1:-1] == "e" * (len(text) - 2) and text.endswith("x"))


@pytest.mark.guarantee(64)
@PROFILE
@given(
    STEPS,
    st.booleans(),
    st.booleans(),
    st.frozensets(st.integers(0, 3), max_size=2),
    st.booleans(),
    st.sampled_from(["dead_letter", "emit"]),
    st.sampled_from(["a start opens", "any event opens", "in parts"]),
)
def test_exactly_the_whole_letters_are_sessions(
    steps: list[tuple[str, str, int, int]],
    in_header: bool,
    incomplete: bool,
    lost: frozenset[int],
    counted: bool,
    on_timeout: Literal["dead_letter", "emit"],
    sessions_are: str,
) -> None:
    rules = replace(TIGHT, on_timeout=on_timeout, type_path=None if in_header else TIGHT.type_path)
    if sessions_are == "any event opens":
        rules = replace(rules, start="", entry=("entry_event", "start_event"))
    elif sessions_are == "in parts":
        rules = replace(rules, start="", end="", entry="*", on_timeout="emit")
    letters, sessions = letters_of(steps, rules)
    for letter in [*letters, *(damaged(letter, lost, counted) for letter in letters)]:
        try:
            closed = session_of(letter, rules, incomplete=incomplete)
        except NotWholeError:
            assert not is_whole(letter, rules, incomplete=incomplete)
            continue
        assert is_whole(letter, rules, incomplete=incomplete)
        session = to_session(closed, "in", 0)
        assert [event.offset for event in session.events] == letter.event_offsets
        assert session.end.offset == letter.event_offsets[-1]
        before = sessions.get(letter.first_offset)
        by_reason = {"restarted": "restart", "timed_out": "timeout", "transform_failed": "timeout"}
        by_reason |= {"transform_failed": "limit"} if before and before.ended_by == "limit" else {}
        has_end = session.events[-1].type == rules.end
        assert session.ended_by == ("end" if has_end else by_reason[letter.reason])
        if letter.reason == "transform_failed" and before and len(session.events) == len(before.events):
            assert session == before


def test_the_steps_make_letters_of_every_kind() -> None:
    """Or the test above would say little."""
    steps = [
        *(("a", kind, 5, 0) for kind in ("start_event", "entry_event", "end_event", "entry_event", "odd")),
        *(("a", kind, 5, 0) for kind in ("start_event", "start_event", *["entry_event"] * 4, "end_event")),
        ("b", "start_event", 5, 0),
        ("b", "entry_event", 100, 0),
    ]
    letters, _ = letters_of(steps, TIGHT)
    assert {letter.reason for letter in letters} == {
        "transform_failed",
        "no_start",
        "malformed",
        "restarted",
        "too_large",
        "timed_out",
    }


@pytest.mark.guarantee(64)
@pytest.mark.parametrize(
    ("on_timeout", "elapsed_ms", "ended_by"),
    [("emit", 5, "end"), ("emit", 61, "timeout"), ("dead_letter", 61, "timeout")],
)
def test_a_part_that_other_settings_end_is_retried_as_that_part(
    on_timeout: Literal["dead_letter", "emit"], elapsed_ms: int, ended_by: EndedBy
) -> None:
    """Its events do not tell its number: the letter does."""
    silent = replace(TIGHT, start="", end="", entry="*", on_timeout="emit")
    rules = replace(TIGHT, start="", on_timeout=on_timeout)
    log = [
        Record(0, at, 5 * at, "k", orjson.dumps({"event_type": kind, "session_key": "k"}))
        for at, kind in enumerate([*["entry_event"] * 6, "end_event"])
    ]
    log[6] = replace(log[6], ts=25 + elapsed_ms)
    state = assemble(OpenState.empty(), table(log[:6], silent), silent).state
    found = assemble(state, table(log[6:], rules), rules)
    rows = [
        *(failed(0, closed, ValueError("no luck"), types_in_header=False) for closed in found.closed),
        *(row_of(0, each) for each in found.letters),
    ]
    (row,) = [each for each in rows if each["first_offset"] == 4]
    kept = [(each.offset, each.ts, each.value) for each in log[4 : 4 + row["kept"]]]
    place = row["first_offset"], row["last_offset"], row["closing_offset"]
    letter = stored(row["reason"], "k", kept, None, place, row["events"], row["detail"])
    session = to_session(session_of(letter, rules, incomplete=True), "in", 0)
    assert (session.part, session.ended_by) == (2, ended_by)


SILENT = AssemblySettings(start="", end="", entry="*", on_timeout="emit")
PART_2 = "part 2 of its session, ended by limit\n"
TRACE = "Traceback (most recent call last):\n  File ...\nValueError: "


def read_part(detail: str, reason: str = "transform_failed") -> tuple[int, EndedBy]:
    """The part that a retry makes of a letter."""
    value = orjson.dumps({"event_type": "entry_event", "session_key": "k"})
    letter = stored(reason, "k", [(0, 5, value)], None, (0, 0, 0), 1, detail)
    session = to_session(session_of(letter, SILENT, incomplete=True), "in", 0)
    return session.part, session.ended_by


@pytest.mark.parametrize(
    ("detail", "part"),
    [
        (PART_2 + TRACE, (2, "limit")),
        (PART_2 + CUT + "x" * 9_000, (2, "limit")),
        (PART_2 + TRACE + "x" * 7_000, (2, "limit")),
        (CUT + PART_2 + "x" * 9_000, (1, "timeout")),
        (TRACE + PART_2, (1, "timeout")),
        # Forms that the job never wrote for a failed transform: an exception's text begins with them.
        ("part 7 of its session: no end" + "x" * 7_971, (1, "timeout")),
        ("part 7 of its session, ended by limit: " + "x" * 7_971, (1, "timeout")),
        (f"part {'1' * 4_301} of its session:", (1, "timeout")),
        (f"part {'1' * 10} of its session, ended by end\n", (1, "timeout")),
        ("part 0 of its session, ended by end\n", (1, "timeout")),
        ("part \u0661 of its session, ended by end\n", (1, "timeout")),
    ],
)
def test_the_number_of_a_part_is_read_only_as_the_job_writes_it(
    detail: str, part: tuple[int, EndedBy]
) -> None:
    assert read_part(detail) == part


@pytest.mark.parametrize("reason", ["timed_out", "restarted"])
def test_the_number_of_a_part_without_an_end_is_read_only_as_the_job_writes_it(reason: str) -> None:
    assert read_part("part 3 of its session: no end event", reason)[0] == 3
    assert read_part(PART_2, reason)[0] == 1


def test_a_cut_traceback_of_an_earlier_release_that_may_begin_with_an_events_text_gives_no_part() -> None:
    """It kept the last 8,000 characters, whatever they began with."""
    with pytest.raises(NotWholeError, match="which an earlier release wrote"):
        read_part(PART_2 + "x" * (8_000 - len(PART_2)))


def test_an_event_that_the_exception_quotes_does_not_make_a_part() -> None:
    """Wherever the traceback is cut."""
    kinds = ("start_event", "entry_event", "end_event")
    log = [
        Record(0, at, 5, "k", orjson.dumps({"event_type": kind, "session_key": "k"}))
        for at, kind in enumerate(kinds)
    ]
    (closed,) = assemble(OpenState.empty(), table(log, AssemblySettings()), AssemblySettings()).closed
    for length in range(7_000, 8_200):
        error = ValueError("x" * 500 + PART_2 + "y" * length)
        detail = failed(0, closed, error, types_in_header=False)["detail"]
        assert part_of("transform_failed", detail) == (1, "timeout")


def test_a_session_is_read_by_the_settings_of_its_generation() -> None:
    then = Settings(
        session={
            "key": "header:k",
            "type": "$.kind",
            "start": "on",
            "entry": "at",
            "end": "off",
            "time": "$.t",
        }  # type: ignore[arg-type]
    )
    rules = applied_rules(stored_rules(then)).rules
    values = [
        orjson.dumps({"kind": kind, "t": f"2026-01-01T00:00:0{n}Z"})
        for n, kind in enumerate(("on", "at", "off"))
    ]
    letter = stored(
        "transform_failed", "k", [(n, 5, value) for n, value in enumerate(values)], None, (0, 2, 2), 3
    )
    session = to_session(session_of(letter, rules), "in", 0)
    assert [event.type for event in session.events] == ["on", "at", "off"]
    assert session.ended_at.second == 2
    with pytest.raises(NotWholeError, match="is malformed"):
        session_of(letter, AssemblySettings(key_path=None))


def test_the_schemas_of_a_letter_are_asked_for_by_whoever_needs_them_first() -> None:
    rules = AssemblySettings(format="avro", start="start", entry="entry", end="end")
    with registry(own=True) as server:
        encode = registered(server, "avro")
        click = {"session_key": "k", "price_cents": 7, "tags": []}
        values = [encode(click | {"event_type": kind}) for kind in ("start", "entry", "end")]
        letter = stored(
            "transform_failed", "k", [(n, 5, value) for n, value in enumerate(values)], None, (0, 2, 2), 3
        )
        closed = session_of(letter, rules, schemas_of(server.options()))
    assert closed.types() == ["start", "entry", "end"]


@pytest.mark.parametrize(
    ("changed", "end", "because"),
    [
        ({}, 13, None),
        ({}, 12, "closes at offset 12 of in/0, which the job is about to read again"),
        ({"state": "resolved", "resolved_batch": 9}, 13, "batch 9 has resolved it"),
        ({"state": "discarded"}, 13, "it is discarded"),
        ({"newer_letter": 8}, 13, "letter 8"),
    ],
)
def test_a_letter_passes_only_where_nothing_else_speaks_for_its_events(
    changed: dict[str, object], end: int, because: str | None
) -> None:
    letter = stored("transform_failed", "k", [(12, 5, b"{}")], None, (12, 12, 12), 1)
    standing = {
        "state": "open",
        "resolved_batch": None,
        "newer_letter": None,
    } | changed
    found = refusal(letter, standing, Offsets({TopicPartition("id", 0): end}), {"id": "topic"})
    assert found is None if because is None else because in (found or "")


def test_a_letter_of_a_partition_that_nobody_has_read_is_not_retried() -> None:
    letter = stored("transform_failed", "k", [(0, 5, b"{}")], None, (0, 0, 0), 1)
    assert refusal(letter, {"state": "open"}, Offsets(), {}) is not None


def test_a_letter_of_a_topic_that_was_made_again_is_retried_because_nothing_reads_the_former_one() -> None:
    letter = stored("transform_failed", "k", [(0, 5, b"{}")], None, (0, 0, 0), 1)
    standing = {"state": "open", "resolved_batch": None, "newer_letter": None}
    assert refusal(letter, standing, Offsets(), {"new id": "in"}) is None
    assert refusal(letter, standing, Offsets(), {"new id": "other"}) is not None
