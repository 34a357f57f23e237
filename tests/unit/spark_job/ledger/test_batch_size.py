"""Batches shrink where size explains a failure, and what does not fit is not tried again and again."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.ledger.batch_size import BatchSize, PastRun, next_size

MOST = 100_000


def failed(size: int, at: int | None = None) -> PastRun:
    return PastRun(size, at or size, stopped=False)


def away(size: int) -> PastRun:
    return PastRun(size, None, stopped=False)


STOPPED = PastRun(7, None, stopped=True)


@pytest.mark.parametrize(
    ("past", "begins", "ceiling"),
    [
        ([], MOST, MOST),
        ([STOPPED, failed(400)], MOST, MOST),
        ([failed(400)], 100, 200),
        ([failed(400, at=1_600)], 400, 800),
        ([failed(3)], 1, 1),
        ([failed(1)], 1, MOST),
        ([failed(1)] * 20, 1, MOST),
        ([failed(1), failed(3), failed(12)], 1, MOST),
        ([away(16), failed(1)], 16, MOST),
        ([failed(4 * MOST)], MOST, MOST),
        ([away(MOST)] * 50, MOST, MOST),
        ([away(100)] * 50, 100, MOST),
        ([away(100), failed(400)], 100, 200),
        ([failed(100), failed(400)], 25, 50),
        ([away(100), STOPPED, failed(400)], 100, MOST),
    ],
)
def test_only_what_size_explains_makes_batches_smaller_and_a_stop_ends_that(
    past: list[PastRun], begins: int, ceiling: int
) -> None:
    size = next_size(past, MOST)
    assert size.max_events == begins
    while size.successes_to_grow == 4:
        size.grow()
    assert size.max_events == ceiling


def backlog(fits: Callable[[int], int], batches: int) -> tuple[int, int]:
    """Let runs work on a backlog; `fits` says what the batch of a number may have. Return (failures, events)."""
    past: list[PastRun] = []
    done = events = 0
    while done < batches:
        size = next_size(past[::-1][:50], MOST)
        began, successes = size.max_events, 0
        while done < batches:
            if size.max_events > fits(done):
                break
            size.committed(size.max_events)
            done, events, successes = done + 1, events + size.max_events, successes + 1
            if successes == size.successes_to_grow:
                size.grow()
                successes = 0
        else:
            break
        assert began > 1 or size.max_events > 1, "one event always fits"
        past.append(PastRun(began, size.failed_at, stopped=False))
    return len(past), events


@pytest.mark.guarantee(118)
@given(st.integers(1, MOST), st.integers(100, 20_000))
def test_a_backlog_that_does_not_fit_costs_few_failures_and_keeps_most_of_its_speed(
    fits: int, batches: int
) -> None:
    failures, events = backlog(lambda _: fits, batches)
    descent = math.ceil(math.log(MOST, 4)) + 1
    assert failures <= 2 * descent + math.log2(batches)
    # Half of what fits at the least is the ceiling; the way up to it takes some batches.
    assert events >= batches * fits / 8 or batches < 1_000


@given(st.integers(1, MOST), st.integers(1, 200))
def test_after_a_stretch_that_does_not_fit_batches_grow_to_what_the_settings_allow(
    fits: int, stretch: int
) -> None:
    failures, events = backlog(lambda number: fits if number < stretch else MOST, 20_000)
    assert failures <= 30
    assert events >= 10_000 * MOST


def test_a_size_of_which_a_full_batch_was_committed_is_not_to_blame_until_it_grows() -> None:
    size = BatchSize(100, MOST, ceiling=200)
    blamed = []
    for events in (89, 90):  # of several partitions a full batch has a few less
        size.committed(events)
        blamed.append(size.failed_at)
    size.grow()
    assert [*blamed, size.failed_at] == [100, None, 200]


def test_a_storm_of_kills_that_leaves_each_run_a_full_batch_makes_no_batch_smaller() -> None:
    past: list[PastRun] = []
    for _ in range(30):
        size = next_size(past[::-1], MOST)
        size.committed(size.max_events)
        past.append(PastRun(size.max_events, size.failed_at, stopped=False))
    assert next_size(past[::-1], MOST).max_events == MOST


def test_a_setting_that_is_lowered_bounds_everything() -> None:
    size = BatchSize(10, 20, ceiling=1_000)
    while size.successes_to_grow is not None:
        size.grow()
    assert size.max_events == 20
