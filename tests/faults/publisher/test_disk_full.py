"""A broker whose disk is full takes nothing; the publisher waits, and continues when there is room."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PATIENCE_S, PublisherScenario, SetUp
from tests.support.servers.kafka_on_small_disk import KafkaOnSmallDisk
from tests.support.waiting import wait_until

_MEGABYTES = 64


@pytest.fixture
def crowded_kafka(tmp_path: Path) -> Iterator[KafkaOnSmallDisk]:
    """Of the test's own."""
    server = KafkaOnSmallDisk(tmp_path / "kafka", _MEGABYTES)
    try:
        server.start()
        yield server
    finally:
        server.destroy()


def full(kafka: KafkaOnSmallDisk, point: str, detail: str) -> PublisherCell:
    """The last block goes while a lane stands at the point; the broker gives up its only disk, and ends."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.meet(Fault(point, Action.HOLD, 3), batches=3)
        kafka.fill()
        scenario.release()
        scenario.feed(40)
        wait_until(lambda: not kafka.is_running(), "the end of a broker without a disk", PATIENCE_S)
        return "the broker ended: " + kafka.last_words()

    def recover(scenario: PublisherScenario) -> str:
        assert scenario.publisher.is_alive()
        kafka.make_room()
        kafka.start()
        return scenario.recover()

    return PublisherCell("the broker's disk is full", point, "no space left", strike, recover, 3, detail)


@pytest.mark.guarantee(34)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_full_disk_of_the_broker_costs_no_event(
    set_up: SetUp, crowded_kafka: KafkaOnSmallDisk, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    cells = [
        full(crowded_kafka, "transaction.after_begin", "nothing of the transaction is sent"),
        full(
            crowded_kafka,
            "transaction.before_commit",
            "all records are in Kafka, its commit markers find no room",
        ),
    ]
    run_cells(matrix, "a full disk", cells, set_up(bootstrap=crowded_kafka.bootstrap_servers), tell)
