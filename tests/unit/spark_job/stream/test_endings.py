"""A query's state only goes forward, and of several failures the one is told that may have caused the others."""

import itertools
import threading
from collections.abc import Callable

import pytest

from spark_job.stream.endings import FailedPart, Interruption, QueryEnding, State


class Ending:
    """A query's, with all that may change its state."""

    def __init__(self) -> None:
        self.stop, self.interruption = threading.Event(), Interruption()
        self.query = QueryEnding(self.stop, self.interruption)


CAUSES: dict[str, tuple[Callable[[Ending], None], State]] = {
    "growth": (lambda ending: ending.query.grow(), State.GROWING),
    "signal": (lambda ending: ending.stop.set(), State.STOPPING),
    "takeover": (lambda ending: ending.interruption.fence(), State.STOPPING),
    "failure": (lambda ending: ending.query.fail(FailedPart.BATCH, ValueError()), State.FAILED),
}


@pytest.mark.parametrize("order", list(itertools.permutations(CAUSES)))
def test_in_any_order_the_state_is_the_last_one_that_anything_has_caused(order: tuple[str, ...]) -> None:
    ending, expected = Ending(), State.RUNNING
    assert ending.query.state is expected
    for name in order:
        cause, state = CAUSES[name]
        cause(ending)
        expected = max(expected, state)
        assert ending.query.state is expected
        assert ending.query.ends_run == (expected >= State.STOPPING)


@pytest.mark.parametrize("order", list(itertools.permutations(FailedPart)))
def test_a_failure_is_told_before_those_that_it_may_have_caused(order: tuple[FailedPart, ...]) -> None:
    query, failures = Ending().query, {part: ValueError(part.name) for part in FailedPart}
    assert query.failure is None
    for number, part in enumerate(order, 1):
        query.fail(part, failures[part])
        query.fail(part, ValueError("a consequence"))
        assert query.failure is failures[min(order[:number])]
