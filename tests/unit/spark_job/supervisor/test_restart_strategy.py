"""Each restart strategy does what its settings say, whenever the failures come."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.settings import RestartSettings
from spark_job.supervisor.restart_strategy import GiveUp, Restart, RestartStrategy

GAPS = st.lists(st.floats(0, 1_000), max_size=60)


def answers(failures_at: list[float], chance: float = 0.0, **settings: Any) -> list[Restart | GiveUp]:
    """What a strategy answers to failures at these seconds."""
    strategy = RestartStrategy(RestartSettings(**settings), lambda: chance)
    return [strategy.failed(at) for at in failures_at]


def delays(found: list[Restart | GiveUp]) -> list[float]:
    """The delays; every answer must be a restart."""
    assert all(isinstance(answer, Restart) for answer in found)
    return [answer.in_s for answer in found if isinstance(answer, Restart)]


def moments(gaps: list[float]) -> list[float]:
    """The seconds of failures with these gaps between them."""
    at = 0.0
    return [at := at + gap for gap in gaps]


def test_no_strategy_gives_up_at_the_first_failure() -> None:
    (answer,) = answers([0], strategy="none")
    assert answer == GiveUp('[restart] strategy is "none"')


def test_the_exponential_delay_grows_to_its_bound_and_begins_anew_after_a_quiet_time() -> None:
    settings: dict[str, Any] = {
        "strategy": "exponential",
        "delay_s": 1,
        "multiplier": 3,
        "max_delay_s": 10,
        "reset_after_s": 60,
    }
    # The fourth restart comes at 3 + 10 s: a failure less than 60 s after it is still of the same trouble.
    found = answers([0, 1, 2, 3, 72.9, 142.9], **settings)
    assert delays(found) == [1, 3, 9, 10, 10, 1]
    assert [answer.attempt for answer in found if isinstance(answer, Restart)] == [1, 2, 3, 4, 5, 1]


def test_jitter_takes_away_its_part_of_the_delay_at_the_most() -> None:
    shortest = answers([0, 0, 0], chance=1.0, delay_s=10, multiplier=2, max_delay_s=30, jitter=0.2)
    assert delays(shortest) == pytest.approx([8, 16, 24])


@pytest.mark.parametrize("strategy", ["fixed_delay", "exponential"])
def test_it_gives_up_after_so_many_restarts_in_succession(strategy: str) -> None:
    *restarts, last = answers([0, 1, 2], strategy=strategy, attempts=2, delay_s=7, jitter=0, multiplier=1)
    assert delays(restarts) == [7, 7]
    assert last == GiveUp("restarts in succession: 2 ([restart] attempts)")


@pytest.mark.parametrize("strategy", ["fixed_delay", "exponential"])
def test_a_quiet_time_gives_all_attempts_back(strategy: str) -> None:
    delays(answers([0, 100, 200, 300], strategy=strategy, attempts=1, delay_s=10, jitter=0, reset_after_s=90))
    late = answers([0, 99.9], strategy=strategy, attempts=1, delay_s=10, jitter=0, reset_after_s=90)
    assert isinstance(late[1], GiveUp)


def test_the_failure_rate_counts_within_its_window_only() -> None:
    settings: dict[str, Any] = {"strategy": "failure_rate", "failures": 3, "window_s": 10, "delay_s": 2}
    assert delays(answers([0, 5, 10, 15, 20], **settings)) == [2] * 5
    *restarts, last = answers([0, 5, 9.9], **settings)
    assert delays(restarts) == [2, 2]
    assert last == GiveUp("failures within 10 s: 3 ([restart] failures)")


@given(GAPS, st.floats(0, 100), st.floats(1, 100), st.floats(0, 1), st.floats(0, 1), st.floats(0, 500))
def test_exponential_delays_stay_within_their_bounds(
    gaps: list[float], delay_s: float, multiplier: float, jitter: float, chance: float, reset_after_s: float
) -> None:
    found = answers(
        moments(gaps),
        chance=chance,
        delay_s=delay_s,
        multiplier=multiplier,
        jitter=jitter,
        max_delay_s=100,
        reset_after_s=reset_after_s,
    )
    for in_s in delays(found):
        assert delay_s * (1 - jitter) * 0.999 <= in_s <= 100
    for before, after in pairwise(found):
        assert isinstance(before, Restart)
        assert isinstance(after, Restart)
        assert after.attempt in (1, before.attempt + 1)
        assert after.attempt == 1 or after.in_s >= before.in_s


@given(GAPS, st.integers(1, 10), st.floats(1, 2_000))
def test_the_failure_rate_gives_up_exactly_when_so_many_failures_lie_within_the_window(
    gaps: list[float], failures: int, window_s: float
) -> None:
    at = moments(gaps)
    found = answers(at, strategy="failure_rate", failures=failures, window_s=window_s)
    for n, answer in enumerate(found):
        within = sum(at[n] - earlier < window_s for earlier in at[: n + 1])
        assert isinstance(answer, GiveUp) == (within >= failures)
