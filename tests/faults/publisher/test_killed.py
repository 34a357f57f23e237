"""A publisher that dies or fails at any step of its protocol delivers each event once: at a first start, in a backlog, in a recovery."""

from collections.abc import Callable

import pytest

from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import (
    AFTER_KAFKAS_COMMIT,
    ALL,
    OPENING,
    PAGE,
    STEPS,
    PublisherCell,
    run_cells,
)
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp

_BATCHES = 4


def _hit(point: str) -> int:
    """In the middle of a backlog."""
    return 9 if point == "transaction.during_produce" else 4


def _check(scenario: PublisherScenario, point: str) -> str:
    """What a dead publisher left must be what the place says."""
    found = scenario.found()
    if point == AFTER_KAFKAS_COMMIT:
        assert scenario.ahead() >= 1, found
    if point == "transaction.before_commit":
        assert scenario.open_transactions(), found
    return found


def first_start(point: str) -> PublisherCell:
    """The running publisher comes to a new epoch, whose lanes have never started, and dies in their start or first transaction."""

    def strike(scenario: PublisherScenario) -> str:
        if scenario.transactions():
            scenario.new_epoch()
        scenario.kill_at(Fault(point, Action.KILL))
        return _check(scenario, point)

    return PublisherCell("a lane's first start", point, Action.KILL, strike)


def backlog(point: str) -> PublisherCell:
    """The publisher dies among the transactions of several batches."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.kill_at(Fault(point, Action.KILL, _hit(point)), batches=_BATCHES)
        return _check(scenario, point)

    return PublisherCell("in a backlog", point, Action.KILL, strike, hit=_hit(point))


def recovery(point: str) -> PublisherCell:
    """The one lane's newest commit is not in Postgres; its next life dies while it finds that out."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.kill_at(Fault(point, Action.KILL), batches=0)
        assert scenario.ahead() == (point != "delivery.after_filling")
        return scenario.found()

    return PublisherCell(
        "recovering a commit",
        point,
        Action.KILL,
        strike,
        PublisherScenario.recover if point == OPENING[-1] else None,
    )


def unrecorded() -> PublisherCell:
    """Makes the situation of `recovery`."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.kill_at(Fault(AFTER_KAFKAS_COMMIT, Action.KILL, 2))
        assert scenario.ahead() == 1
        return scenario.found()

    return PublisherCell("one lane in a backlog", AFTER_KAFKAS_COMMIT, Action.KILL, strike, None, hit=2)


def failing(point: str) -> PublisherCell:
    """The same process continues after an exception."""

    def strike(scenario: PublisherScenario) -> str:
        reopened = [Fault("transaction.before_flush", Action.RAISE)] if point in OPENING else []
        scenario.start()
        scenario.meet(*reopened, Fault(point, Action.RAISE, 1 if reopened else _hit(point)), batches=_BATCHES)
        return "the lane starts over"

    def recover(scenario: PublisherScenario) -> str:
        pid = scenario.publisher.pid
        came = scenario.recover()
        assert scenario.publisher.pid == pid
        return f"{came}, the same process"

    hit = 1 if point in OPENING else _hit(point)
    return PublisherCell("in a backlog", point, Action.RAISE, strike, recover, hit)


@pytest.mark.guarantee(27)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_publisher_killed_at_any_step_of_a_lanes_first_start_delivers_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    run_cells(matrix, "killed at a lane's first start", [first_start(point) for point in ALL], set_up(), tell)


@pytest.mark.guarantee(27, 54)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_publisher_killed_at_any_step_of_a_backlog_delivers_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    run_cells(matrix, "killed in a backlog", [backlog(point) for point in STEPS], set_up(), tell)


@pytest.mark.guarantee(27)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_publisher_killed_again_and_again_while_it_recovers_a_commit_records_it_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    cells = [unrecorded(), *(recovery(point) for point in OPENING)]
    run_cells(
        matrix, "killed while it recovers from a kill after Kafka's commit", cells, set_up(lanes=1), tell
    )


@pytest.mark.guarantee(27)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_publisher_that_fails_at_any_step_continues_by_itself_and_delivers_each_event_once(
    set_up: SetUp, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    run_cells(matrix, "failing, in one process", [failing(point) for point in ALL], set_up(), tell)


@pytest.mark.guarantee(27)
def test_a_publisher_killed_around_kafkas_commit_delivers_each_event_once(set_up: SetUp) -> None:
    cells = [backlog("transaction.before_commit"), backlog(AFTER_KAFKAS_COMMIT)]
    run_cells(Matrix(PAGE), "a sample for every run", cells, set_up(), print)
