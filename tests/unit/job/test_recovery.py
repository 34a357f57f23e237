"""Where a start resumes: every combination of checkpoint and ledger either fits exactly or stops with an explanation."""

from datetime import UTC, datetime

import pytest

from db.errors import ContinuityError
from spark_job import recovery
from spark_job.checkpoint import DirectoryState, parse_offsets
from spark_job.ledger import Generation, StreamBatch
from spark_job.offsets import Offsets, TopicPartition

P0 = TopicPartition("id", 0)
START = Offsets({P0: 100})
GENERATION = Generation(
    1, "token", START, START, {"id": "topic"}, "first", "skip", 0, {"timeout_s": 60, "end": "e"}, "f"
)


def ledger_at(spark_batch: int) -> StreamBatch:
    start, end = Offsets({P0: 100 + 10 * spark_batch}), Offsets({P0: 110 + 10 * spark_batch})
    return StreamBatch(spark_batch + 5, spark_batch, start, end, end, end, datetime(2026, 1, 1, tzinfo=UTC))


def planned_end(spark_batch: int) -> Offsets:
    return ledger_at(spark_batch).end


def resume(newest: StreamBatch | None, planned: int | None, committed: int | None) -> recovery.Resumption:
    return recovery.resume(GENERATION, newest, DirectoryState(planned, committed), planned_end, "dir")


@pytest.mark.parametrize("planned", [None, 0])
def test_a_generation_without_a_batch_is_used_again_as_it_stands(planned: int | None) -> None:
    """⚠ design §3.4: a crash between the generation's insert and its first batch changes nothing."""
    assert resume(None, planned, None) == recovery.Resumption("unused generation", 0, START)


@pytest.mark.parametrize(
    ("planned", "committed", "next_batch"),
    [
        (3, 3, 4),  # stopped cleanly
        (4, 3, 4),  # the next batch was planned, not committed anywhere
        (3, 2, 3),  # committed in Postgres, not in Spark: the same batch runs again
    ],
)
def test_a_directory_that_continues_the_ledger_goes_on(planned: int, committed: int, next_batch: int) -> None:
    assert resume(ledger_at(3), planned, committed) == recovery.Resumption(
        "checkpoint", next_batch, Offsets({P0: 140})
    )


@pytest.mark.parametrize(
    ("newest", "planned", "committed", "explanation"),
    [
        (ledger_at(3), None, None, "is empty or missing"),
        (ledger_at(3), 2, 2, "is behind"),
        (ledger_at(3), 3, 1, "is behind"),
        (ledger_at(3), 4, 2, "is behind"),
        (ledger_at(3), 4, None, "is behind"),
        (ledger_at(1), 1, None, "is behind"),
        (ledger_at(0), 1, None, "is behind"),
        (ledger_at(3), 5, 4, "is ahead"),
        (ledger_at(3), 4, 4, "is ahead"),
        (None, 0, 0, "restored to an older state"),
        (None, 1, 0, "restored to an older state"),
        (None, 1, None, "restored to an older state"),
    ],
)
def test_a_directory_that_does_not_fit_stops_with_an_explanation(
    newest: StreamBatch | None, planned: int | None, committed: int | None, explanation: str
) -> None:
    with pytest.raises(ContinuityError, match=explanation):
        resume(newest, planned, committed)


def test_the_first_batch_committed_in_postgres_only_runs_again() -> None:
    assert resume(ledger_at(0), 0, None) == recovery.Resumption("checkpoint", 0, Offsets({P0: 110}))


def test_a_directory_of_another_history_is_found_by_its_offsets() -> None:
    with pytest.raises(ContinuityError, match=r"is another one.*id/0: 999 != 140"):
        recovery.resume(GENERATION, ledger_at(3), DirectoryState(3, 3), lambda _: Offsets({P0: 999}), "dir")


def test_a_changed_assembly_is_named_setting_by_setting() -> None:
    recovery.check_assembly(GENERATION, {"timeout_s": 60, "end": "e"}, "f")
    with pytest.raises(ContinuityError, match="end: 'e' -> 'x'") as caught:
        recovery.check_assembly(GENERATION, {"timeout_s": 60, "end": "x"}, "g")
    assert "timeout_s" not in str(caught.value)


def test_a_topic_made_again_is_found_by_its_id() -> None:
    recovery.check_topics(GENERATION, {"topic": "id", "more": "other"})
    with pytest.raises(ContinuityError, match="'topic' was deleted and made again: its id is new"):
        recovery.check_topics(GENERATION, {"topic": "new"})


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
