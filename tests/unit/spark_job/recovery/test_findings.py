"""What a start finds: it continues, opens a generation, or stops with an explanation and the flag that continues."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from service.errors import ContinuityError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow, with_added
from spark_job.ledger.rules_lineage import Former, Lineage
from spark_job.recovery import findings
from spark_job.recovery.findings import AcceptedRisks, Finding, From, Input, Opening, Resumption
from tests.support.reference.tombstones import tombstones

P0, P1, P2 = (TopicPartition("id", partition) for partition in range(3))
START = Offsets({P0: 100, P1: 50})
END = Offsets({P0: 140, P1: 60})
OPEN = OpenPartitions({P0: OpenPartition(137, 2, 3, 90, "3-digest", tombstones(a=130, b=139))})
ASSEMBLY = {"timeout_s": 60, "end": "e"}
GENERATION = Generation(3, START, OpenPartitions(), Lineage(), {"id": "topic"}, "first", "skip", 0, ASSEMBLY)
AT = InputPosition(GENERATION, StreamRow(8, END, OPEN, datetime(2026, 1, 1, tzinfo=UTC)))
NOW = Input({"topic": "id"}, Offsets({P0: 0, P1: 0}), Offsets({P0: 10_000, P1: 10_000}), ASSEMBLY)
NOTHING = AcceptedRisks()
EVERYTHING = AcceptedRisks(**dict.fromkeys(AcceptedRisks.__dataclass_fields__, True))


def decide(
    now: Input = NOW, accepted: AcceptedRisks = NOTHING, at: InputPosition = AT, **more: Any
) -> Resumption | Opening:
    return findings.continuation(at, now, accepted, **{"greatest_revision": 0} | more)


def opened(decision: Resumption | Opening) -> Opening:
    assert isinstance(decision, Opening)
    return decision


def seen(**changed: Any) -> Input:
    """Kafka and settings with something moved; offsets by partition beside the others'."""
    for name in changed.keys() & {"earliest", "latest"}:
        changed[name] = Offsets({**getattr(NOW, name), **changed[name]})
    return replace(NOW, **changed)


def test_without_a_finding_it_continues_at_the_newest_batch_with_what_is_open_there() -> None:
    assert decide() == Resumption(END, OPEN, "continues at the ledger's position, batch 8 of generation 3")


def test_a_generation_without_a_batch_is_gone_on_with_as_it_stands() -> None:
    """A crash between the generation's insert and its first batch changes nothing."""
    begun = replace(GENERATION, open=OPEN, reason="savepoint")
    decision = decide(at=InputPosition(begun, None))
    assert isinstance(decision, Resumption)
    assert (decision.resumes_at, decision.open) == (START, OPEN)
    assert "the start of generation 3 (savepoint), which has committed nothing yet" in decision.text


def test_a_partition_that_no_position_names_begins_at_its_earliest_record_as_a_number() -> None:
    decision = decide(seen(earliest={P2: 7}, latest={P2: 9}))
    assert isinstance(decision, Resumption)
    assert decision.resumes_at == Offsets({**END, P2: 7})


def test_a_topic_that_is_taken_off_the_list_keeps_its_place_until_it_comes_back() -> None:
    other = TopicPartition("other id", 0)
    generation = replace(
        GENERATION, topics={"id": "topic", "other id": "other"}, start=Offsets({**START, other: 30})
    )
    decision = decide(at=InputPosition(generation, None))
    assert isinstance(decision, Resumption)
    assert decision.resumes_at[other] == 30


def test_an_added_topic_opens_a_generation_and_needs_no_flag() -> None:
    other = TopicPartition("other id", 0)
    decision = opened(
        decide(seen(topic_ids={"topic": "id", "other": "other id"}, earliest={other: 4}, latest={other: 9}))
    )
    assert (decision.reason, decision.start, decision.open) == ("new_topic", Offsets({**END, other: 4}), OPEN)
    assert decision.topics == {"id": "topic", "other id": "other"}


NEW = TopicPartition("new id", 0)
MOVED: dict[str, tuple[Mapping[str, Any], str]] = {
    "new_topic": ({"topic_ids": {"topic": "new id"}}, r"2 are open, partition 0: since offset 137"),
    "truncation": ({"latest": {P0: 139}}, r"topic/0: ends at 139, was read up to 140"),
    "data_loss": (
        {"earliest": {P0: 138}},
        r"topic/0: offsets 137 to 137 \(1\)\. Up to 2 open sessions .* 0 records were never read",
    ),
    "changed_assembly": ({"assembly": {**ASSEMBLY, "end": "x"}}, r"have changed: end: 'e' -> 'x'\."),
}


@pytest.mark.guarantee(82)
@pytest.mark.parametrize("flag", MOVED)
def test_what_could_lose_or_repeat_something_needs_its_own_flag(flag: str) -> None:
    moved, explanation = MOVED[flag]
    option = f"--accept-{flag.replace('_', '-')}"
    others = AcceptedRisks(**{name: name != flag for name in AcceptedRisks.__dataclass_fields__})
    for accepted in (NOTHING, others):
        with pytest.raises(ContinuityError, match=explanation) as caught:
            decide(seen(**moved), accepted)
        assert str(caught.value).endswith(f"with: spark-job run {option}")
    assert opened(decide(seen(**moved), AcceptedRisks(**{flag: True}))).reason == flag


def test_an_outbox_that_is_behind_what_was_delivered_needs_its_flag_and_continues_where_it_is() -> None:
    behind = Finding("outbox_behind", "the database was restored", "--accept-outbox-behind")
    with pytest.raises(ContinuityError, match=r"the database was restored.*--accept-outbox-behind"):
        decide(findings=[behind])
    decision = opened(decide(accepted=AcceptedRisks(outbox_behind=True), findings=[behind]))
    assert (decision.reason, decision.start, decision.open, decision.revision) == (
        "outbox_behind",
        END,
        OPEN,
        0,
    )


@pytest.mark.guarantee(82)
def test_everything_that_needs_a_flag_is_said_at_once_and_the_weightiest_gives_the_reason() -> None:
    now = seen(earliest={P0: 138}, assembly={**ASSEMBLY, "end": "x"})
    with pytest.raises(ContinuityError, match="--accept-data-loss --accept-changed-assembly") as caught:
        decide(now)
    assert "'e' -> 'x'" in str(caught.value)
    decision = opened(decide(now, EVERYTHING))
    assert decision.reason == "data_loss"
    assert "'e' -> 'x'" in decision.text


@pytest.mark.guarantee(148)
def test_accepted_loss_of_open_sessions_takes_what_is_left_of_them_as_it_is_found() -> None:
    decision = opened(decide(seen(earliest={P0: 138}), EVERYTHING))
    assert decision.start == END
    assert decision.open == OpenPartitions({P0: OPEN[P0].unproven(138)})
    assert decision.open[P0].tombstones == OPEN[P0].tombstones, "what they swallow is not needed for them"
    assert decision.lost == {P0: (137, 138)}


@pytest.mark.guarantee(148)
def test_accepted_loss_of_unread_input_starts_where_kafka_still_has_something_with_nothing_open() -> None:
    with pytest.raises(ContinuityError, match=r"offsets 137 to 149 \(13\).* 10 records were never read"):
        decide(seen(earliest={P0: 150}))
    decision = opened(decide(seen(earliest={P0: 150}), EVERYTHING))
    assert decision.start == Offsets({**END, P0: 150})
    assert decision.open == OpenPartitions({P0: OPEN[P0].unproven(150)}), "the tombstones continue swallowing"
    assert decision.lost == {P0: (137, 150)}


def test_retention_below_the_safe_offset_stops_nothing() -> None:
    assert isinstance(decide(seen(earliest={P0: 137, P1: 60})), Resumption)


@pytest.mark.guarantee(82)
def test_offsets_that_kafka_gives_out_again_get_a_revision_of_their_own_and_the_cut_is_kept() -> None:
    decision = opened(decide(seen(latest={P0: 120}), EVERYTHING, greatest_revision=4))
    assert (decision.start, decision.cut, decision.revision) == (
        Offsets({**END, P0: 120}),
        Offsets({P0: 120}),
        5,
    )
    assert decision.open == OpenPartitions(), "what was open began above the new end"
    shorter = opened(decide(seen(latest={P0: 138}), EVERYTHING, greatest_revision=4))
    assert shorter.open == OpenPartitions({P0: OpenPartition(137, 0, 0, 0, None, tombstones(a=130))})


def test_a_topic_made_again_begins_at_its_earliest_record_and_the_former_one_is_given_up() -> None:
    now = replace(NOW, topic_ids={"topic": "new id"}, earliest=Offsets({NEW: 2}), latest=Offsets({NEW: 9}))
    decision = opened(decide(now, EVERYTHING))
    assert (decision.start, decision.open, decision.topics) == (
        Offsets({NEW: 2}),
        OpenPartitions(),
        {"new id": "topic"},
    )


@pytest.mark.guarantee(83)
def test_a_changed_assembly_keeps_what_is_open_and_who_judged_it() -> None:
    now = seen(assembly={**ASSEMBLY, "end": "x"})
    decision = opened(decide(now, EVERYTHING))
    assert (decision.start, decision.open, decision.assembly) == (END, OPEN, now.assembly)
    assert decision.lineage == Lineage((Former(ASSEMBLY, START),))


def test_newer_rules_judge_from_here_on_without_a_flag_and_older_ones_need_it() -> None:
    # What older rules did not know is no change of theirs.
    upgraded = seen(assembly={**ASSEMBLY, "rules": 2, "max_open_bytes": 7})
    decision = opened(decide(upgraded, NOTHING))
    assert (decision.reason, decision.start, decision.open) == ("changed_assembly", END, OPEN)
    assert (decision.assembly, decision.lineage) == (upgraded.assembly, Lineage((Former(ASSEMBLY, START),)))
    with pytest.raises(ContinuityError, match=r"have changed: end: 'e' -> 'x'\."):
        decide(seen(assembly={**ASSEMBLY, "rules": 2, "end": "x"}), NOTHING)
    newest = replace(AT, generation=replace(GENERATION, assembly=upgraded.assembly))
    with pytest.raises(ContinuityError, match=r"rules: 2 -> None"):
        decide(seen(assembly=ASSEMBLY), NOTHING, at=newest)


def test_rules_3_judge_from_here_on_where_the_time_is_a_field_and_open_nothing_elsewhere() -> None:
    before = {**ASSEMBLY, "rules": 2, "max_open_bytes": 7}
    for time, opens in (("$.at", True), ("timestamp", False)):
        of = {**before, "time": time}
        at = replace(AT, generation=replace(GENERATION, assembly=of))
        decision = decide(seen(assembly={**of, "rules": 3 if opens else 2}), NOTHING, at=at)
        assert isinstance(decision, Opening) == opens
        if isinstance(decision, Opening):
            assert (decision.reason, decision.start) == ("changed_assembly", END)
            assert decision.lineage == Lineage((Former(of, START),))


def test_a_generation_keeps_the_policy_and_the_revision_of_the_one_before() -> None:
    at = replace(AT, generation=replace(GENERATION, policy="reissue", revision=2))
    decision = opened(decide(seen(assembly={**ASSEMBLY, "end": "x"}), EVERYTHING, at=at, greatest_revision=7))
    assert (decision.policy, decision.revision) == ("reissue", 2)


def test_the_first_generation_begins_where_it_is_told_and_needs_a_word_where_something_was_delivered_before() -> (
    None
):
    behind = Finding("outbox_behind", "lanes know batch 7", "--accept-outbox-behind")
    with pytest.raises(ContinuityError, match="lanes know batch 7"):
        findings.first(NOW, START, "reads on", NOTHING, [behind])
    decision = findings.first(NOW, START, "reads on", EVERYTHING, [behind])
    assert (decision.reason, decision.start, decision.open, decision.revision) == (
        "first",
        START,
        OpenPartitions(),
        0,
    )


SAVED = From(
    Offsets({P0: 60, P1: 50}),
    OpenPartitions({P0: OpenPartition(50, 1, 2, 9, "d")}),
    Lineage(),
    {"id": "topic"},
    ASSEMBLY,
    "reissue",
    4,
)
RESTORED = Finding("savepoint", "restored from savepoint 's' (reissue)")
COMMAND = "spark-job savepoint restore s --policy reissue"


def restore(now: Input = NOW, accepted: AcceptedRisks = NOTHING) -> Opening:
    return findings.open_wanted(
        SAVED, RESTORED, now, accepted, greatest_revision=3, savepoint="s", command=COMMAND
    )


def test_a_restore_goes_by_its_own_position_policy_and_revision() -> None:
    decision = restore()
    assert (decision.reason, decision.savepoint, decision.policy, decision.revision) == (
        "savepoint",
        "s",
        "reissue",
        4,
    )
    assert (decision.start, decision.open) == (SAVED.end, SAVED.open)


@pytest.mark.parametrize("flag", ["data_loss", "changed_assembly"])
def test_a_restore_needs_the_same_flags_where_its_own_position_does_not_fit_any_more(flag: str) -> None:
    moved: dict[str, dict[str, Any]] = {
        "data_loss": {"earliest": {P0: 55}},
        "changed_assembly": {"assembly": {}},
    }
    now = seen(**moved[flag])
    with pytest.raises(
        ContinuityError, match=r"the request was not carried out, and nothing was written"
    ) as caught:
        restore(now)
    assert str(caught.value).endswith(f"{COMMAND} --accept-{flag.replace('_', '-')}")
    decision = restore(now, EVERYTHING)
    assert decision.reason == "savepoint"
    if flag == "data_loss":
        assert decision.open == OpenPartitions({P0: OpenPartition(55, 0, 0, 0, None)})


def test_what_is_deleted_of_a_partition_that_was_added_after_a_savepoint_is_lost_to_a_reissue() -> None:
    """A start instead begins at its earliest record: nobody has read it, or the position would name it."""
    now = seen(earliest={P2: 7}, latest={P2: 9})
    of = replace(SAVED, end=with_added(SAVED.end, SAVED.topics, now.earliest))
    assert of.end == Offsets({P0: 60, P1: 50, P2: 0})
    with pytest.raises(ContinuityError, match=r"topic/2: offsets 0 to 6 \(7\).* 7 records were never read"):
        findings.open_wanted(of, RESTORED, now, NOTHING, greatest_revision=3)
    decision = findings.open_wanted(of, RESTORED, now, EVERYTHING, greatest_revision=3)
    assert (decision.start.at(P2), decision.lost) == (7, {P2: (0, 7)})


@pytest.mark.parametrize("flag", ["new_topic", "truncation"])
def test_a_restore_to_what_is_gone_or_names_other_events_by_now_has_no_flag(flag: str) -> None:
    moved: dict[str, dict[str, Any]] = {
        "new_topic": {"topic_ids": {"topic": "new id"}},
        "truncation": {"latest": {P0: 55}},
    }
    now = seen(**moved[flag])
    with pytest.raises(
        ContinuityError,
        match=r"No flag accepts that here; `spark-job run` reports how the outbox itself continues",
    ) as caught:
        restore(now)
    assert "--accept" not in str(caught.value)
