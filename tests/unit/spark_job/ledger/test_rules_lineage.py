"""Which assembly rules apply to which offset: the last one that began at or before it, whatever came after and whatever was forgotten."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.settings import SessionSettings, Settings
from spark_job.input.columns import RecordColumns
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.assembly_rules import (
    applied_rules,
    changes,
    has_newer_rules,
    rules_since,
    stored_rules,
)
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.rules_lineage import Former, Lineage
from spark_job.sessions.settings import AssemblySettings

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
A, B, C, D = ({"timeout_s": seconds} for seconds in range(1, 5))

GENERATIONS = st.lists(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys((P0, P1), st.tuples(st.integers(-6, 6), st.integers(0, 6)))
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.guarantee(83)
@settings(max_examples=300, derandomize=True)
@given(GENERATIONS)
def test_every_offset_that_can_still_be_read_is_judged_by_the_generation_that_read_it(
    opened: list[dict[TopicPartition, tuple[int, int]]],
) -> None:
    """Of each generation, by partition: how much further it begins, or how much Kafka has lost of what was read, and how far below that
    the oldest open session begins."""
    lineage, starts = Lineage(), list[Offsets]()
    start, safe = dict[TopicPartition, int](), dict[TopicPartition, int]()
    for number, partitions in enumerate(opened):
        for where, (further, below) in partitions.items():
            before = start.get(where)
            start[where] = max(0, (before or 0) + further)
            # Nothing is read below a partition's first start, nor what an earlier generation did not need any more.
            oldest = start[where] if before is None else max(safe[where], start[where] - below)
            safe[where] = min(oldest, start[where])
        if number:
            lineage = lineage.followed({"n": number - 1}, starts[-1], Offsets(safe))
            lineage = Lineage.from_json(lineage.to_json())
        starts.append(Offsets(start))
        for where in start:
            entries = lineage.since(where, safe[where], starts[-1], {"n": number})
            for offset in range(safe[where], start[where] + 3):
                judge = max(each for each, began in enumerate(starts) if began.at(where) <= offset)
                assert [by for begin, by in entries if begin <= offset][-1] == {"n": judge}


def test_descriptions_whose_offsets_nobody_can_read_again_are_forgotten() -> None:
    after = Lineage((Former(A, Offsets({P0: 0})),)).followed(B, Offsets({P0: 10}), Offsets({P0: 10}))
    assert [each.assembly for each in after.former] == [B]
    kept = Lineage((Former(A, Offsets({P0: 0})),)).followed(B, Offsets({P0: 10}), Offsets({P0: 9}))
    assert [each.assembly for each in kept.former] == [A, B]
    merged = Lineage((Former(A, Offsets({P0: 3, P1: 4})),)).only_for([P0], [P0, P1])
    after = merged.followed(B, Offsets({P0: 10, P1: 10}), Offsets({P0: 10, P1: 8}))
    assert [each.assembly for each in after.former] == [B], "what applies to some partitions alone, too"


def test_who_judged_what_kafka_has_lost_does_not_judge_what_has_these_offsets_now() -> None:
    """A from 100 on, read to 130, where a session is open since 20; Kafka loses what lies above 50."""
    lineage = Lineage((Former(A, Offsets({P0: 0})), Former(B, Offsets({P0: 100, P1: 7}))))
    assert lineage.since(P0, 20, Offsets({P0: 50, P1: 9}), C) == [(0, A), (50, C)]
    after = lineage.followed(C, Offsets({P0: 50, P1: 9}), Offsets({P0: 20, P1: 8}))
    assert after.since(P0, 60, Offsets({P0: 200, P1: 9}), D) == [(50, C), (200, D)]
    assert after.since(P1, 8, Offsets({P0: 200, P1: 9}), D) == [(7, B), (9, C), (9, D)]


def test_a_lineage_for_some_partitions_leaves_the_others_to_others() -> None:
    both = Lineage((Former(A, Offsets({P0: 3, P1: 4})),))
    mine = both.only_for([P0], [P0, P1])
    own = Offsets({P0: 10, P1: 10})
    assert mine.since(P0, 3, own, B) == [(3, A), (10, B)]
    assert mine.since(P1, 3, own, B) == [(10, B)]


def generation(assembly: dict[str, Any], lineage: Lineage, **start: int) -> Generation:
    offsets = Offsets({TopicPartition("id", int(name[1:])): offset for name, offset in start.items()})
    return Generation(1, offsets, OpenPartitions(), lineage, {"id": "in"}, "first", "skip", 0, assembly)


def test_the_last_judge_of_a_slice_is_the_generations_own_and_those_before_judge_what_is_found_again() -> (
    None
):
    before, now = (
        stored_rules(Settings(session=SessionSettings(timeout_s=1))),
        stored_rules(Settings(session=SessionSettings(timeout_s=2))),
    )
    of = generation(now, Lineage((Former(before, Offsets({P0: 0})),)), p0=10)
    found = rules_since(of, P0, 7)
    assert [(each.from_offset, each.applied.rules.timeout_ms) for each in found] == [(0, 1_000), (10, 2_000)]
    assert [each.from_offset for each in rules_since(of, P0, 10)] == [10]


def test_a_description_says_everything_that_decides_what_a_session_is() -> None:
    session = SessionSettings(
        key="header:k",
        type="$.a.kind",
        start="on",
        entry="at",
        end="off",
        event_id="header:id",
        time="$.t",
        time_format="epoch_ms",
        timeout_s=1.5,
        grace_s=0.25,
        max_events=7,
        max_bytes=2_048,
        max_open_bytes=70_000,
        on_timeout="emit",
    )
    assembly = stored_rules(Settings(session=session))
    settings_of, columns = applied_rules(assembly)
    assert settings_of == AssemblySettings(
        type_path=("a", "kind"),
        key_path=None,
        start="on",
        entry="at",
        end="off",
        event_id_path=None,
        time_path=("t",),
        time_format="epoch_ms",
        timeout_ms=1_500,
        grace_ms=250,
        max_events=7,
        max_bytes=2_048,
        max_open_bytes=70_000,
        on_timeout="emit",
    )
    assert columns == RecordColumns({"key": "k", "event_id": "id"})


def test_a_description_of_an_older_version_has_the_defaults_of_what_it_lacks_and_no_use_for_what_is_gone() -> (
    None
):
    assert applied_rules({"timeout_s": 5, "buckets": 8}).rules == AssemblySettings(
        timeout_ms=5_000, rules_version=1
    )
    assert applied_rules({"key": "key"}).columns == RecordColumns({"key": ""})


def test_each_change_of_a_description_is_named() -> None:
    before = stored_rules(Settings())
    for name in before.keys() - {"rules"}:
        now = before | {name: "changed"}
        assert changes(before, now) == [f"{name}: {before[name]!r} -> 'changed'"]
    assert changes(before, dict(reversed(before.items()))) == []


OF_THE_RELEASE_BEFORE = {
    "key": "$.session_key",
    "type": "$.event_type",
    "start": "start_event",
    "entry": "entry_event",
    "end": "end_event",
    "event_id": None,
    "time": "timestamp",
    "time_format": "iso8601",
    "timeout_s": 60,
    "grace_s": 20,
    "max_events": 10_000,
    "max_bytes": 16_777_216,
    "max_open_bytes": 1_073_741_824,
    "rules": 2,
}


@pytest.mark.guarantee(83)
def test_an_upgrade_to_settings_that_the_release_before_did_not_have_opens_no_generation() -> None:
    """Savepoints compare descriptions as they are, so the defaults must not even be named."""
    assert stored_rules(Settings()) == OF_THE_RELEASE_BEFORE
    assert changes(OF_THE_RELEASE_BEFORE, stored_rules(Settings())) == []
    assert applied_rules(OF_THE_RELEASE_BEFORE).rules.on_timeout == "dead_letter"


@pytest.mark.guarantee(83)
def test_an_upgrade_from_rules_2_is_a_change_only_where_the_time_is_a_field() -> None:
    """By rules 3 the broker's times no longer vouch for the events'. Rules of other settings judge as before, and are stored as before."""
    timed = SessionSettings(time="$.at")
    before, now = OF_THE_RELEASE_BEFORE | {"time": "$.at"}, stored_rules(Settings(session=timed))
    assert (now, now["rules"]) == (before | {"rules": 3}, 3)
    assert has_newer_rules(before, now)
    assert not has_newer_rules(now, now)
    assert not has_newer_rules(OF_THE_RELEASE_BEFORE, stored_rules(Settings()))
    assert [applied_rules(each).rules.trusts_broker_times for each in (before, now)] == [True, False]
    # A release that judges by older rules again is a change, as any setting.
    assert changes(before, now) == []
    assert changes(now, before) == ["rules: 3 -> 2"]


@pytest.mark.guarantee(83)
def test_another_source_of_the_time_is_a_change_of_the_time_alone() -> None:
    timed = stored_rules(Settings(session=SessionSettings(time="$.at")))
    for before, now in ((OF_THE_RELEASE_BEFORE, timed), (timed, OF_THE_RELEASE_BEFORE)):
        assert changes(before, now) == [f"time: {before['time']!r} -> {now['time']!r}"]
        assert not has_newer_rules(before, now)


@pytest.mark.guarantee(83)
def test_to_emit_sessions_that_time_out_is_a_change_of_the_assembly_and_back_again_too() -> None:
    now = stored_rules(Settings(session=SessionSettings(on_timeout="emit")))
    assert changes(OF_THE_RELEASE_BEFORE, now) == ["on_timeout: 'dead_letter' -> 'emit'"]
    assert changes(now, OF_THE_RELEASE_BEFORE) == ["on_timeout: 'emit' -> 'dead_letter'"]


@pytest.mark.guarantee(83)
def test_clock_records_are_a_change_of_the_assembly_and_read_a_header() -> None:
    now = stored_rules(Settings(session=SessionSettings(clock_records=True)))
    assert changes(OF_THE_RELEASE_BEFORE, now) == ["clock_records: False -> True"]
    assert changes(now, OF_THE_RELEASE_BEFORE) == ["clock_records: True -> False"]
    rules, columns = applied_rules(now)
    assert (rules.clock_records, columns.sources) == (True, {"clock": "outbox-clock"})
    before = applied_rules(OF_THE_RELEASE_BEFORE)
    assert (before.rules.clock_records, before.columns.sources) == (False, {})


def test_several_types_of_entries_are_a_list_in_the_description_in_one_order() -> None:
    of = [stored_rules(Settings(session=SessionSettings(entry=names))) for names in (("b", "a"), ("a", "b"))]
    assert of[0]["entry"] == ["a", "b"]
    assert changes(*of) == []
    assert applied_rules(of[0]).rules.entry == ("a", "b")


def test_the_format_is_part_of_the_description_and_json_leaves_it_as_it_was() -> None:
    assert stored_rules(Settings()).keys().isdisjoint({"format", "schema_id"})
    of = Settings(
        source={"format": "avro", "schema_id": "header:id"},  # type: ignore[arg-type]
        schema_registry={"url": "http://h"},  # type: ignore[arg-type]
    )
    settings_of, columns = applied_rules(stored_rules(of))
    assert (settings_of.format, settings_of.schema_id_in_header) == ("avro", True)
    assert columns.sources["schema_id"] == "id"
