"""Each restart strategy does what its settings say, whenever the failures come."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.settings import RestartSettings
from spark_job.supervisor.restart_delay import GiveUp, Restart, RestartStrategy

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
        "delay_s": 1,
        "max_delay_s": 3,
        "reset_after_s": 60,
    }
    # The fourth restart comes at 3 + 3 s: a failure less than 60 s after it is still of the same trouble.
    found = answers([0, 1, 2, 3, 65.9, 128.9], **settings)
    assert delays(found) == [1, 2, 3, 3, 3, 1]
    assert [answer.attempt for answer in found if isinstance(answer, Restart)] == [1, 2, 3, 4, 5, 1]


def test_jitter_takes_away_its_part_of_the_delay_at_the_most() -> None:
    shortest = answers([0, 0, 0], chance=1.0, delay_s=10, max_delay_s=30)
    assert delays(shortest) == pytest.approx([9, 18, 27])


def test_it_gives_up_after_so_many_restarts_in_succession() -> None:
    *restarts, last = answers([0, 1, 2], attempts=2, delay_s=7, max_delay_s=7)
    assert delays(restarts) == [7, 7]
    assert last == GiveUp("restarts in succession: 2 ([restart] attempts)")


def test_a_quiet_time_gives_all_attempts_back() -> None:
    delays(answers([0, 100, 200, 300], attempts=1, delay_s=10, reset_after_s=90))
    late = answers([0, 99.9], attempts=1, delay_s=10, reset_after_s=90)
    assert isinstance(late[1], GiveUp)


@given(GAPS, st.floats(0, 100), st.floats(0, 1), st.floats(0, 500))
def test_exponential_delays_stay_within_their_bounds(
    gaps: list[float], delay_s: float, chance: float, reset_after_s: float
) -> None:
    found = answers(
        moments(gaps),
        chance=chance,
        delay_s=delay_s,
        max_delay_s=100,
        reset_after_s=reset_after_s,
    )
    for in_s in delays(found):
        assert delay_s * 0.9 * 0.999 <= in_s <= 100
    for before, after in pairwise(found):
        assert isinstance(before, Restart)
        assert isinstance(after, Restart)
        assert after.attempt in (1, before.attempt + 1)
        assert after.attempt == 1 or after.in_s >= before.in_s * 0.999
