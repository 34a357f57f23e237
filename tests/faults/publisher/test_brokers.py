"""A broker that dies, stops or hangs in the middle of a transaction, also for longer than that may last, costs nothing but time."""

import time
from collections.abc import Callable

import pytest

from service.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import Cell, play
from tests.support.faults.publisher_scenario import PATIENCE_S, SetUp, Stage
from tests.support.servers.proxied_kafka import ProxiedKafka
from tests.support.waiting import wait_until

TRANSACTION_TIMEOUT_MS = 2_000
_HITS = {"transaction.during_produce": 7}
Strike = Callable[[Stage], str]


def _held(stage: Stage, point: str) -> None:
    stage.meet(Fault(point, Action.HOLD, _HITS.get(point, 3)), batches=3)


def down(kafka: ProxiedKafka, point: str, end: Callable[[], None]) -> Strike:
    """The broker ends while a lane stands at the point; the lane goes on and finds it gone."""

    def strike(stage: Stage) -> str:
        _held(stage, point)
        end()
        assert not kafka.is_running()
        stage.release()
        return "no broker"

    return strike


def back(kafka: ProxiedKafka) -> Strike:
    """The broker comes back."""

    def recover(stage: Stage) -> str:
        kafka.start()
        return stage.recover()

    return recover


def down_for_longer(kafka: ProxiedKafka) -> Strike:
    """The case that Flink's sink loses: all records are in Kafka, then the broker is away for longer than the transaction may last.

    The broker has ended the transaction by itself before the publisher asks for its commit.
    """

    def strike(stage: Stage) -> str:
        _held(stage, "transaction.before_commit")
        kafka.kill()
        kafka.start()
        return _aborted_by_the_broker(stage)

    return strike


def stands_still_for_longer(stage: Stage) -> str:
    """The broker is well, the publisher takes longer than the transaction may last."""
    _held(stage, "transaction.before_commit")
    return _aborted_by_the_broker(stage)


def _aborted_by_the_broker(stage: Stage) -> str:
    assert not stage.plan.pending()
    # The other lane still works: its transactions come and go, the one that is held goes once.
    wait_until(lambda: not stage.open_transactions(), "the end of the transaction that ran out", PATIENCE_S)
    return "the transaction was aborted by the broker"


def hangs(kafka: ProxiedKafka) -> Strike:
    """The broker answers nobody for longer than a transaction may last, and goes on."""

    def strike(stage: Stage) -> str:
        _held(stage, "transaction.before_commit")
        kafka.pause()
        stage.release()
        until = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1_000
        wait_until(lambda: time.monotonic() > until, "the length of the fault")
        kafka.resume()
        return "the broker hung"

    return strike


def _cell(fault: str, detail: str, action: str, strike: Strike, recover: Strike = Stage.recover) -> Cell:
    return Cell("a transaction in flight", fault, action, strike, recover, detail=detail)


def killed(kafka: ProxiedKafka) -> list[Cell]:
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


def away(kafka: ProxiedKafka) -> list[Cell]:
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


@pytest.mark.timeout(900)
def test_a_broker_that_is_killed_in_the_middle_of_a_transaction_loses_and_repeats_nothing(
    set_up: SetUp, own_kafka: ProxiedKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    stage = set_up(bootstrap=own_kafka.bootstrap_servers, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    play(matrix, "a broker that is killed", killed(own_kafka), stage, tell)


@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_broker_that_is_away_in_the_middle_of_a_transaction_loses_and_repeats_nothing(
    set_up: SetUp, own_kafka: ProxiedKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    stage = set_up(bootstrap=own_kafka.bootstrap_servers, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    play(matrix, "a broker that is away", away(own_kafka), stage, tell)
