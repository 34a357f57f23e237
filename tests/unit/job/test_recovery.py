"""Where a start resumes: every combination of checkpoint, ledger and input goes on, opens a generation, or stops with an explanation."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from db.errors import ContinuityError
from spark_job import directory_fit, recovery
from spark_job.checkpoint import parse_offsets
from spark_job.directory_fit import DirectoryState, Fit
from spark_job.ledger import Generation, StreamBatch
from spark_job.offsets import Offsets, TopicPartition
from spark_job.position import Position
from spark_job.recovery import Accepted, Finding, Input, Opening, Resumption, Wanted

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
START = Offsets({P0: 100})
ASSEMBLY = {"timeout_s": 60, "end": "e", "buckets": 4, "shuffle_partitions": 2}
GENERATION = Generation(3, "token", START, START, {"id": "topic"}, "first", "skip", 0, ASSEMBLY, "f")
NOW = Input({"topic": "id"}, Offsets({P0: 0}), Offsets({P0: 10_000}), ASSEMBLY)
NOTHING = Accepted()


def ledger_at(spark_batch: int, *, done: int | None = None) -> StreamBatch:
    """A batch of ten offsets; the oldest open session began three offsets before its end."""
    start, end = Offsets({P0: 100 + 10 * spark_batch}), Offsets({P0: 110 + 10 * spark_batch})
    reached = Offsets({P0: max(end.at(P0), done or 0)})
    safe = Offsets({P0: end.at(P0) - 3})
    return StreamBatch(
        spark_batch + 5, spark_batch, start, end, reached, safe, datetime(2026, 1, 1, tzinfo=UTC)
    )


def planned_end(spark_batch: int) -> Offsets:
    return ledger_at(spark_batch).end


def at(newest: StreamBatch | None, **changes: Any) -> Position:
    return Position(replace(GENERATION, **changes), newest)


def fit(newest: StreamBatch | None, planned: int | None, committed: int | None) -> Fit:
    return directory_fit.fit(at(newest), DirectoryState(planned, committed), planned_end, "dir")


def decide(
    position: Position, found: Fit, now: Input = NOW, accepted: Accepted = NOTHING, greatest_revision: int = 0
) -> Resumption | Opening:
    return recovery.decide(position, found, now, accepted, greatest_revision=greatest_revision)


def opened(decision: Resumption | Opening) -> Opening:
    assert isinstance(decision, Opening)
    return decision


@pytest.mark.parametrize("planned", [None, 0])
def test_a_generation_without_a_batch_is_used_again_as_it_stands(planned: int | None) -> None:
    """⚠ design §3.4: a crash between the generation's insert and its first batch changes nothing."""
    decision = decide(at(None), fit(None, planned, None))
    assert isinstance(decision, Resumption)
    assert (decision.restored, decision.spark_batch, decision.resumes_at) == ("unused_generation", 0, START)


@pytest.mark.parametrize(
    ("planned", "committed", "next_batch", "reads_from"),
    [
        (3, 3, 4, 140),  # stopped cleanly
        (4, 3, 4, 140),  # the next batch was planned, not committed anywhere
        (3, 2, 3, 130),  # committed in Postgres, not in Spark: the same batch runs again
    ],
)
def test_a_directory_that_continues_the_ledger_goes_on(
    planned: int, committed: int, next_batch: int, reads_from: int
) -> None:
    decision = decide(at(ledger_at(3)), fit(ledger_at(3), planned, committed))
    assert isinstance(decision, Resumption)
    assert (decision.restored, decision.spark_batch) == ("checkpoint", next_batch)
    assert decision.resumes_at == Offsets({P0: reads_from})
    assert decision.read_again == 140 - reads_from


def test_the_first_batch_committed_in_postgres_only_runs_again() -> None:
    assert fit(ledger_at(0), 0, None).kind == "continues"
    assert fit(ledger_at(0), 0, None).reads_from == START


@pytest.mark.parametrize(
    ("newest", "planned", "committed", "kind", "explanation"),
    [
        (ledger_at(3), None, None, "lost", "is empty or missing"),
        (ledger_at(3), 2, 2, "lost", "is behind"),
        (ledger_at(3), 3, 1, "lost", "is behind"),
        (ledger_at(3), 4, 2, "lost", "is behind"),
        (ledger_at(3), 4, None, "lost", "is behind"),
        (ledger_at(1), 1, None, "lost", "is behind"),
        (ledger_at(0), 1, None, "lost", "is behind"),
        (ledger_at(3), 5, 4, "ahead", "is ahead"),
        (ledger_at(3), 4, 4, "ahead", "is ahead"),
        (None, 0, 0, "ahead", "restored or failed over to an older state"),
        (None, 1, 0, "ahead", "restored or failed over to an older state"),
        (None, 1, None, "ahead", "restored or failed over to an older state"),
    ],
)
def test_a_directory_that_does_not_fit_is_lost_or_ahead(
    newest: StreamBatch | None, planned: int | None, committed: int | None, kind: str, explanation: str
) -> None:
    found = fit(newest, planned, committed)
    assert found.kind == kind
    assert explanation in found.text


@pytest.mark.parametrize("state", [DirectoryState(3, 3), DirectoryState(50, 49)])
def test_a_directory_of_another_history_is_lost_however_far_it_is(state: DirectoryState) -> None:
    """One that is further in its own count does not show that the database lost something."""
    found = directory_fit.fit(at(ledger_at(3)), state, lambda _: Offsets({P0: 999}), "dir")
    assert found.kind == "lost"
    assert "is another one: its Spark batch 3 ends elsewhere (id/0: 999 != 140)" in found.text


def test_an_unreadable_offset_log_is_lost() -> None:
    def unreadable(_: int) -> Offsets:
        raise ContinuityError("offsets/3 is not an offset log entry")

    found = directory_fit.fit(at(ledger_at(3)), DirectoryState(3, 3), unreadable, "dir")
    assert (found.kind, found.text) == ("lost", "offsets/3 is not an offset log entry")
    # Spark deletes old entries: then nothing shows that a directory ahead is another one.
    assert directory_fit.fit(at(ledger_at(3)), DirectoryState(500, 499), unreadable, "dir").kind == "ahead"


def test_a_lost_checkpoint_costs_a_re_read_and_no_flag() -> None:
    decision = opened(decide(at(ledger_at(3)), fit(ledger_at(3), None, None)))
    assert decision.reason == "checkpoint_lost"
    assert decision.start == Offsets({P0: 137})
    assert decision.high_water == Offsets({P0: 140})
    assert decision.read_again == 3


def test_a_second_loss_during_the_catch_up_keeps_the_high_water_at_done() -> None:
    """⚠ design §3.4: at the end of what was read again, what lies between end and done would go out twice."""
    catching_up = ledger_at(3, done=500)
    decision = opened(decide(at(catching_up), fit(catching_up, None, None)))
    assert decision.start == Offsets({P0: 137})
    assert decision.high_water == Offsets({P0: 500})
    assert decision.read_again == 363


def test_a_new_generation_inherits_policy_and_revision() -> None:
    decision = opened(
        decide(
            at(ledger_at(3), policy="reissue", revision=2), fit(ledger_at(3), None, None), greatest_revision=7
        )
    )
    assert (decision.policy, decision.revision) == ("reissue", 2)


def test_a_new_generation_keeps_the_buckets_of_the_one_before() -> None:
    now = replace(NOW, assembly={**ASSEMBLY, "buckets": 64, "shuffle_partitions": 32})
    kept = decide(at(ledger_at(3)), fit(ledger_at(3), 3, 3), now)
    assert isinstance(kept, Resumption), "settings that only a rescale changes are no reason to stop"
    decision = opened(decide(at(ledger_at(3)), fit(ledger_at(3), None, None), now))
    assert decision.assembly == ASSEMBLY


@pytest.mark.parametrize(
    ("found", "now", "flag", "explanation"),
    [
        (fit(ledger_at(3), 5, 5), {}, "outbox_behind", "restored or failed over"),
        (
            fit(ledger_at(3), 3, 3),
            {"topic_ids": {"topic": "new"}},
            "new_topic",
            "open since partition 0: offset 137",
        ),
        (
            fit(ledger_at(3), None, None),
            {"earliest": Offsets({P0: 138})},
            "data_loss",
            r"topic/0: offsets 137 to 137 \(1\)",
        ),
        (fit(ledger_at(3), 3, 3), {"earliest": Offsets({P0: 150})}, "data_loss", "offsets 137 to 149"),
        (
            fit(ledger_at(3), 3, 3),
            {"latest": Offsets({P0: 139})},
            "data_loss",
            "ends at 139, was read up to 140",
        ),
        (
            fit(ledger_at(3), 3, 3),
            {"assembly": {**ASSEMBLY, "end": "x"}},
            "changed_assembly",
            r"changed since generation 3 was opened: end: 'e' -> 'x'\.",
        ),
    ],
)
def test_what_could_lose_or_repeat_something_needs_its_flag(
    found: Fit, now: Mapping[str, Any], flag: str, explanation: str
) -> None:
    seen = replace(NOW, **now)
    with pytest.raises(ContinuityError, match=explanation) as caught:
        decide(at(ledger_at(3)), found, seen)
    option = f"--accept-{flag.replace('_', '-')}"
    assert str(caught.value).endswith(f"spark-job run {option}")
    others = Accepted(**{name: name != flag for name in Accepted.__dataclass_fields__})
    with pytest.raises(ContinuityError, match=option):
        decide(at(ledger_at(3)), found, seen, others)
    assert opened(decide(at(ledger_at(3)), found, seen, Accepted(**{flag: True}))).reason == flag


def test_everything_that_needs_a_flag_is_said_at_once() -> None:
    now = replace(NOW, earliest=Offsets({P0: 138}), assembly={**ASSEMBLY, "end": "x"})
    with pytest.raises(
        ContinuityError, match="--accept-outbox-behind --accept-changed-assembly --accept-data-loss"
    ):
        decide(at(ledger_at(3)), fit(ledger_at(3), 5, 5), now)
    all_of_it = Accepted(outbox_behind=True, changed_assembly=True, data_loss=True)
    decision = opened(decide(at(ledger_at(3)), fit(ledger_at(3), 5, 5), now, all_of_it))
    assert decision.reason == "outbox_behind"
    assert "'e' -> 'x'" in decision.text
    assert decision.lost == {P0: (137, 138)}


def test_accepted_data_loss_starts_where_kafka_still_has_something() -> None:
    now = replace(NOW, earliest=Offsets({P0: 150}))
    decision = opened(decide(at(ledger_at(3)), fit(ledger_at(3), 3, 3), now, Accepted(data_loss=True)))
    assert decision.start == Offsets({P0: 150})
    assert decision.high_water == Offsets({P0: 140})


def test_offsets_that_kafka_gives_out_again_are_judged_anew_with_a_revision_of_their_own() -> None:
    now = replace(NOW, latest=Offsets({P0: 120}))
    decision = opened(
        decide(at(ledger_at(3)), fit(ledger_at(3), 3, 3), now, Accepted(data_loss=True), greatest_revision=4)
    )
    assert decision.start == Offsets({P0: 120})
    assert decision.high_water == Offsets({P0: 120})
    assert decision.revision == 5


def test_a_topic_made_again_starts_at_its_earliest_record() -> None:
    new = TopicPartition("new", 0)
    now = replace(NOW, topic_ids={"topic": "new"}, earliest=Offsets({new: 2}), latest=Offsets({new: 9}))
    decision = opened(decide(at(ledger_at(3)), fit(ledger_at(3), 3, 3), now, Accepted(new_topic=True)))
    assert decision.start == Offsets({new: 2})
    assert decision.high_water == Offsets({P0: 140}), "what was done of the old one stays known"


@pytest.mark.parametrize("newest", [None, ledger_at(0, done=500)])
def test_sessions_that_a_catch_up_has_not_reached_yet_are_named_as_open(newest: StreamBatch | None) -> None:
    position = at(newest, high_water=Offsets({P0: 500}))
    now = replace(NOW, topic_ids={"topic": "new id"}, earliest=Offsets(), latest=Offsets())
    with pytest.raises(ContinuityError, match=r"open since partition 0: offset (100|107)\)"):
        decide(position, fit(newest, None, None), now)


def test_a_partition_that_was_added_starts_at_its_earliest_record() -> None:
    now = replace(NOW, earliest=Offsets({P0: 0, P1: 0}), latest=Offsets({P0: 500, P1: 9}))
    assert opened(decide(at(ledger_at(3)), fit(ledger_at(3), None, None), now)).start == Offsets(
        {P0: 137, P1: 0}
    )


def test_an_added_partition_whose_first_records_are_deleted_needs_a_word() -> None:
    """Spark refuses to begin such a partition anywhere but at 0: without a finding no flag would help."""
    healthy = fit(ledger_at(3), 3, 3)
    added = replace(NOW, earliest=Offsets({P0: 0, P1: 7}), latest=Offsets({P0: 10_000, P1: 9}))
    with pytest.raises(ContinuityError, match=r"topic/1: offsets 0 to 6 \(7\).*--accept-data-loss"):
        decide(at(ledger_at(3)), healthy, added)
    decision = opened(decide(at(ledger_at(3)), healthy, added, Accepted(data_loss=True)))
    assert decision.start == Offsets({P0: 137, P1: 7})
    another = TopicPartition("other id", 0)
    appended = replace(
        NOW,
        topic_ids={"topic": "id", "other": "other id"},
        earliest=Offsets({P0: 0, another: 7}),
        latest=Offsets({P0: 10_000, another: 9}),
    )
    lost = fit(ledger_at(3), None, None)
    assert opened(decide(at(ledger_at(3)), lost, appended)).start == Offsets({P0: 137, another: 7})


def test_an_unfinished_batch_that_kafka_deleted_is_no_loss_where_the_safe_offsets_are_there() -> None:
    """Its outputs are in the outbox; only Spark would have read it again."""
    now = replace(NOW, earliest=Offsets({P0: 135}))
    decision = opened(decide(at(ledger_at(3)), fit(ledger_at(3), 3, 2), now))
    assert decision.reason == "checkpoint_lost"
    assert decision.start == Offsets({P0: 137})


def test_retention_behind_the_position_stops_nothing() -> None:
    """The open sessions are in the state; only a lost checkpoint would need what was deleted."""
    now = replace(NOW, earliest=Offsets({P0: 140}))
    assert isinstance(decide(at(ledger_at(3)), fit(ledger_at(3), 3, 3), now), Resumption)


def test_a_new_generation_on_request_needs_no_reason() -> None:
    decision = opened(
        decide(at(ledger_at(3)), fit(ledger_at(3), 3, 3), accepted=Accepted(new_generation=True))
    )
    assert (decision.reason, decision.high_water) == ("requested", Offsets({P0: 140}))


def test_the_first_generation_is_refused_where_the_folder_holds_a_newer_one() -> None:
    behind = Finding("outbox_behind", "the folder holds gen-4", "--accept-outbox-behind")
    with pytest.raises(ContinuityError, match="the folder holds gen-4"):
        recovery.first(NOW, START, NOTHING, [behind])
    assert recovery.first(NOW, START, Accepted(outbox_behind=True), [behind]).reason == "first"


def test_a_restore_goes_by_its_own_offsets_policy_and_revision() -> None:
    wanted = Wanted(
        "savepoint",
        Offsets({P0: 50}),
        Offsets({P0: 60}),
        "reissue",
        4,
        ASSEMBLY,
        "restored from savepoint 's'",
        "s",
    )
    decision = recovery.open_wanted(at(ledger_at(3)), wanted, NOW, NOTHING, greatest_revision=3)
    assert (decision.start, decision.high_water) == (Offsets({P0: 50}), Offsets({P0: 60}))
    assert (decision.policy, decision.revision, decision.savepoint) == ("reissue", 4, "s")
    assert decision.read_again == 90
    with pytest.raises(ContinuityError, match="offsets 50 to 54"):
        recovery.open_wanted(
            at(ledger_at(3)), wanted, replace(NOW, earliest=Offsets({P0: 55})), NOTHING, greatest_revision=3
        )


def test_a_restore_of_a_topic_that_is_gone_is_refused() -> None:
    wanted = Wanted(
        "savepoint",
        Offsets({TopicPartition("gone", 0): 5}),
        Offsets(),
        "skip",
        0,
        ASSEMBLY,
        "savepoint 's'",
        "s",
    )
    with pytest.raises(ContinuityError, match="the input topic that it reads is gone"):
        recovery.open_wanted(at(ledger_at(3)), wanted, NOW, NOTHING, greatest_revision=0)


def test_sparks_offset_log_is_read_by_topic_id() -> None:
    text = 'v1\n{"batchWatermarkMs":0}\n{"topic":{"1":7,"0":5}}\n'
    assert parse_offsets(text, "offsets/3", {"topic": "id"}) == Offsets({P0: 5, TopicPartition("id", 1): 7})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v9\n{}\n{}",
        "v1\n{}",
        "v1\n{}\n{}\n{}",
        "v1\n{}\nnot json",
        'v1\n{}\n{"other":{"0":1}}',
        "v1\n{}\n-",
    ],
)
def test_anything_else_in_the_offset_log_stops_with_its_name(text: str) -> None:
    with pytest.raises(ContinuityError, match="offsets/3 is not an offset log entry"):
        parse_offsets(text, "offsets/3", {"topic": "id"})
