"""A publisher that stood still while another took its lanes over is fenced when it wakes, commits nothing twice, and serves again."""

import signal
from collections.abc import Callable

import pytest

from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PAGE, PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp

_OPENING = (
    "delivery.after_lease",  # it fences its own successor when it wakes
    "delivery.after_fencing",
    "delivery.after_progress",
    "delivery.after_check",
)
_STEPS = {
    "delivery.after_read": 3,
    "transaction.during_produce": 7,
    "transaction.before_flush": 3,
    "transaction.before_commit": 3,
    "transaction.after_commit": 3,
    "delivery.after_record": 3,
}
_ANYWHERE = "SIGSTOP"


class Takeover:
    """The publisher is stopped, a second one takes over and delivers, the first wakes; then the second dies and the first continues."""

    def __init__(self, point: str) -> None:
        self._point = point

    def strike(self, scenario: PublisherScenario) -> str:
        """Stop it and let the second one deliver everything; wake it."""
        self._before = scenario.transactions()
        if self._point == _ANYWHERE:
            scenario.start()
            scenario.feed(6)
            scenario.wait_until_moving()
        else:
            reopened = [Fault("transaction.before_flush", Action.RAISE)] if self._point in _OPENING else []
            scenario.meet(*reopened, Fault(self._point, Action.HOLD, _STEPS.get(self._point, 1)), batches=4)
        scenario.publisher.pause()
        found = scenario.found()
        self._second = scenario.another()
        self._second.start()
        scenario.feed()
        scenario.wait_until_drained()
        self._woken = len(scenario.publisher.log())
        scenario.release()
        scenario.publisher.resume()
        return found

    def recover(self, scenario: PublisherScenario) -> str:
        """The second one dies at once: the zombie, awake, has to deliver the rest."""
        scenario.feed()
        scenario.wait_until_drained()
        scenario.wait_until(lambda: self._has_noticed(scenario), "fencing")
        self._second.kill()
        scenario.feed()
        came = scenario.judge(self._before)
        # What woke is a whole publisher: it also ends when it is asked to.
        scenario.publisher.send_signal(signal.SIGTERM)
        assert scenario.publisher.wait() == 0
        return f"taken over; {came}, the last ones by the zombie"

    def _has_noticed(self, scenario: PublisherScenario) -> bool:
        """Whether the state of one of the lanes has changed for the zombie since it woke."""
        said = scenario.publisher.log()[self._woken :]
        return "lane_" in said


def cell(point: str) -> PublisherCell:
    """Of one place at which the publisher stands still."""
    takeover = Takeover(point)
    detail = "a running process stops anywhere in a backlog" if point == _ANYWHERE else ""
    action = "stop" if point == _ANYWHERE else "hold, SIGSTOP"
    return PublisherCell(
        "a zombie wakes after a takeover",
        point,
        action,
        takeover.strike,
        takeover.recover,
        _STEPS.get(point, 1),
        detail,
    )


@pytest.mark.guarantee(29)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_zombie_that_wakes_after_a_takeover_commits_nothing_twice(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    run_cells(matrix, "zombies", [cell(point) for point in (*_OPENING, *_STEPS, _ANYWHERE)], set_up(), tell)


@pytest.mark.guarantee(29)
def test_a_zombie_that_wakes_before_its_commit_is_fenced(set_up: SetUp) -> None:
    run_cells(Matrix(PAGE), "a sample for every run", [cell("transaction.before_commit")], set_up(), print)
