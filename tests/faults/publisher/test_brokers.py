"""A broker that dies, stops or hangs in the middle of a transaction, also for longer than that may last, costs nothing but time."""

import time
from collections.abc import Callable

import pytest

from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.servers.proxied_kafka import ProxiedKafka
from tests.support.waiting import wait_until

TRANSACTION_TIMEOUT_MS = 2_000
_HITS = {"transaction.during_produce": 7}
Strike = Callable[[PublisherScenario], str]


def _held(scenario: PublisherScenario, point: str) -> None:
    scenario.meet(Fault(point, Action.HOLD, _HITS.get(point, 3)), batches=3)


def down(kafka: ProxiedKafka, point: str, end: Callable[[], None]) -> Strike:
    """The broker ends while a lane stands at the point; the lane continues and finds it gone."""

    def strike(scenario: PublisherScenario) -> str:
        _held(scenario, point)
        end()
        assert not kafka.is_running()
        scenario.release()
        return "no broker"

    return strike


def back(kafka: ProxiedKafka) -> Strike:
    """The broker comes back."""

    def recover(scenario: PublisherScenario) -> str:
        kafka.start()
        return scenario.recover()

    return recover


def down_for_longer(kafka: ProxiedKafka) -> Strike:
    """The case that Flink's sink loses: all records are in Kafka, then the broker is away for longer than the transaction may last.

    The broker has ended the transaction by itself before the publisher asks for its commit.
    """

    def strike(scenario: PublisherScenario) -> str:
        _held(scenario, "transaction.before_commit")
        kafka.kill()
        kafka.start()
        return _aborted_by_the_broker(scenario)

    return strike


def stands_still_for_longer(scenario: PublisherScenario) -> str:
    """The broker is well, the publisher takes longer than the transaction may last."""
    _held(scenario, "transaction.before_commit")
    return _aborted_by_the_broker(scenario)


def _aborted_by_the_broker(scenario: PublisherScenario) -> str:
    assert not scenario.plan.pending()
    # The other lane still works: its transactions come and go, the one that is held goes once.
    scenario.wait_until(lambda: not scenario.open_transactions(), "the end of the transaction that ran out")
    return "the transaction was aborted by the broker"


def hangs(kafka: ProxiedKafka) -> Strike:
    """The broker answers nobody for longer than a transaction may last, and continues."""

    def strike(scenario: PublisherScenario) -> str:
        _held(scenario, "transaction.before_commit")
        kafka.pause()
        scenario.release()
        until = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1_000
        wait_until(lambda: time.monotonic() > until, "the length of the fault")
        kafka.resume()
        return "the broker hung"

    return strike


def _cell(
    fault: str, detail: str, action: str, strike: Strike, recover: Strike = PublisherScenario.recover
) -> PublisherCell:
    return PublisherCell("a transaction in flight", fault, action, strike, recover, detail=detail)


def killed(kafka: ProxiedKafka) -> list[PublisherCell]:
    """The broker dies and comes back at once."""
    points = {
        "transaction.during_produce": "half of the rows are sent",
        "transaction.before_commit": "all records are in Kafka, no commit",
        "transaction.after_commit": "committed, not recorded",
    }
    return [
        _cell("broker killed", detail, "SIGKILL", down(kafka, point, kafka.kill), back(kafka))
        for point, detail in points.items()
    ]


def away(kafka: ProxiedKafka) -> list[PublisherCell]:
    """The broker is stopped, or away for longer than a transaction may last."""
    sent = "all records are in Kafka"
    return [
        _cell(
            "broker stopped",
            f"{sent}, no commit",
            "SIGTERM",
            down(kafka, "transaction.before_commit", kafka.stop),
            back(kafka),
        ),
        _cell(
            "broker down for longer than transaction.timeout.ms",
            f"{sent}; the broker aborts before the commit is asked for",
            "SIGKILL",
            down_for_longer(kafka),
        ),
        _cell(
            "publisher slower than transaction.timeout.ms",
            f"{sent}; the broker aborts before the commit is asked for",
            "hold",
            stands_still_for_longer,
        ),
        _cell(
            "broker hangs for longer than transaction.timeout.ms",
            "the commit is asked for meanwhile",
            "SIGSTOP",
            hangs(kafka),
        ),
    ]


@pytest.mark.guarantee(30)
@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_broker_that_is_killed_in_the_middle_of_a_transaction_loses_and_repeats_nothing(
    set_up: SetUp, own_kafka: ProxiedKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    scenario = set_up(bootstrap=own_kafka.bootstrap_servers, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    run_cells(matrix, "a broker that is killed", killed(own_kafka), scenario, tell)


@pytest.mark.guarantee(30)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_broker_that_is_away_in_the_middle_of_a_transaction_loses_and_repeats_nothing(
    set_up: SetUp, own_kafka: ProxiedKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    scenario = set_up(bootstrap=own_kafka.bootstrap_servers, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    run_cells(matrix, "a broker that is away", away(own_kafka), scenario, tell)
