"""A lane that was idle until the broker forgot it goes on by itself (Flink's sink starts over for ever: FLINK-39072)."""

from collections.abc import Callable

import pytest

from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import Cell, play
from tests.support.faults.publisher_scenario import PATIENCE_S, SetUp, Stage
from tests.support.proxies.kafka_protocol import list_transactions
from tests.support.servers.proxied_kafka import ProxiedKafka
from tests.support.waiting import wait_until

_FORGETFUL = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "500",
}


def forgotten(running: bool) -> Cell:
    """Idle lanes of a running publisher, or of one that was killed."""

    def strike(stage: Stage) -> str:
        stage.start()
        stage.feed()
        # While there is work: they may be forgotten again before the verdict is in.
        wait_until(lambda: bool(list_transactions(stage.bootstrap)), "transactional ids", PATIENCE_S)
        stage.judge()
        if not running:
            stage.publisher.kill()
        wait_until(
            lambda: not list_transactions(stage.bootstrap),
            "the broker to forget every transactional id",
            PATIENCE_S,
        )
        stage.feed()
        return "the broker knows no transactional id"

    def recover(stage: Stage) -> str:
        pid = stage.publisher.pid
        came = stage.recover()
        assert (stage.publisher.pid == pid) is running
        return came

    return Cell(
        "an idle publisher" if running else "a publisher that is down",
        "ids expire",
        "wait",
        strike,
        recover,
        detail="transactional.id.expiration.ms, producer.id.expiration.ms",
    )


@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_lanes_that_the_broker_has_forgotten_go_on_by_themselves(
    set_up: SetUp, own_kafka: ProxiedKafka, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    own_kafka.restart_with(_FORGETFUL)
    try:
        stage = set_up(bootstrap=own_kafka.bootstrap_servers)
        play(matrix, "ids that the broker forgets", [forgotten(True), forgotten(False)], stage, tell)
    finally:
        own_kafka.restart_with({})
