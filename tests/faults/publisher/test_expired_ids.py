"""A lane that was idle until the broker forgot it continues by itself (Flink's sink starts over for ever: FLINK-39072)."""

from collections.abc import Callable

import pytest

from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PATIENCE_S, PublisherScenario, SetUp
from tests.support.proxies.kafka_protocol import list_transactions
from tests.support.servers.proxied_kafka import ProxiedKafka
from tests.support.waiting import wait_until

_FORGETFUL = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "500",
}


def forgotten(running: bool) -> PublisherCell:
    """Idle lanes of a running publisher, or of one that was killed."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.start()
        scenario.feed()
        # While there is work: they may be forgotten again before the verdict is in.
        wait_until(lambda: bool(list_transactions(scenario.bootstrap)), "transactional ids", PATIENCE_S)
        scenario.judge()
        if not running:
            scenario.publisher.kill()
        wait_until(
            lambda: not list_transactions(scenario.bootstrap),
            "the broker to forget every transactional id",
            PATIENCE_S,
        )
        scenario.feed()
        return "the broker knows no transactional id"

    def recover(scenario: PublisherScenario) -> str:
        pid = scenario.publisher.pid
        came = scenario.recover()
        assert (scenario.publisher.pid == pid) is running
        return came

    return PublisherCell(
        "an idle publisher" if running else "a publisher that is down",
        "ids expire",
        "wait",
        strike,
        recover,
        detail="transactional.id.expiration.ms, producer.id.expiration.ms",
    )


@pytest.mark.guarantee(33)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_lanes_that_the_broker_has_forgotten_continue_by_themselves(
    set_up: SetUp, own_kafka: ProxiedKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    own_kafka.restart_with(_FORGETFUL)
    try:
        scenario = set_up(bootstrap=own_kafka.bootstrap_servers)
        run_cells(matrix, "ids that the broker forgets", [forgotten(True), forgotten(False)], scenario, tell)
    finally:
        own_kafka.restart_with({})
