"""Three brokers: whichever leader dies while the publisher works, the others continue and each event is delivered once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from publisher.kafka.topics import Topics
from service.kafka.client import admin_client
from service.settings import KafkaSettings
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.servers.kafka_cluster import KafkaCluster, KafkaNode

_PARTITIONS_OF_INTERNAL_TOPICS = 4  # devstack/kafka.py
_PROGRESS_GROUP = "outbox-publisher-progress"
_SITUATION = "a backlog, three brokers"
_CLIENTS = 12  # each takes one of three brokers for the controller, by chance


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Of the test's own."""
    with KafkaCluster(tmp_path / "cluster") as running:
        yield running


def internal_partition(name: str) -> int:
    """The partition of an internal topic that a group or a transactional id belongs to: Java's String.hashCode, made positive."""
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % _PARTITIONS_OF_INTERNAL_TOPICS


def leader_dies(
    cluster: KafkaCluster, title: str, place: Callable[[PublisherScenario], tuple[str, int]]
) -> PublisherCell:
    """The leader dies among a backlog, which the other two brokers take to its end; then it comes back."""
    dead: list[KafkaNode] = []

    def strike(scenario: PublisherScenario) -> str:
        scenario.start()
        scenario.feed(4)
        scenario.wait_until_moving()
        topic, partition = place(scenario)
        dead[:] = [cluster.leader(topic, partition)]
        dead[0].kill()
        scenario.feed()
        scenario.wait_until_drained()
        return f"broker {dead[0].node} led it; the other two took over and delivered"

    def recover(scenario: PublisherScenario) -> str:
        dead[0].start()
        return scenario.recover()

    return PublisherCell(
        _SITUATION, f"the leader of {title} dies", "SIGKILL", strike, recover, detail="among transactions"
    )


def rolling_restart(cluster: KafkaCluster) -> PublisherCell:
    """Every broker is stopped and started, one after the other, with work all the time."""

    def strike(scenario: PublisherScenario) -> str:
        for node in cluster.nodes.values():
            scenario.feed()
            node.stop()
            scenario.feed()
            node.start()
        return "every broker was away once"

    return PublisherCell(
        _SITUATION, "rolling restart", "SIGTERM", strike, detail="one broker after the other"
    )


def too_few(cluster: KafkaCluster) -> PublisherCell:
    """Two of three die: nothing can be committed, and nothing is lost."""
    first, second, _ = cluster.nodes

    def strike(scenario: PublisherScenario) -> str:
        scenario.start()
        scenario.feed(4)
        scenario.wait_until_moving()
        cluster.nodes[first].kill()
        cluster.nodes[second].kill()
        scenario.feed()
        return "one broker, min.insync.replicas 2"

    def recover(scenario: PublisherScenario) -> str:
        cluster.start()
        return scenario.recover()

    return PublisherCell(
        _SITUATION, "two brokers die", "SIGKILL", strike, recover, detail="among transactions"
    )


@pytest.mark.guarantee(30)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_whichever_leader_of_a_cluster_dies_each_event_is_delivered_once(
    set_up: SetUp, cluster: KafkaCluster, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    cells = [
        leader_dies(
            cluster,
            "__transaction_state",
            lambda scenario: ("__transaction_state", internal_partition(scenario.transactional_id(0))),
        ),
        leader_dies(
            cluster,
            "__consumer_offsets",
            lambda _: ("__consumer_offsets", internal_partition(_PROGRESS_GROUP)),
        ),
        leader_dies(cluster, "the progress topic", lambda scenario: (scenario.progress_topic, 0)),
        leader_dies(cluster, "an output partition", lambda scenario: (scenario.outbox.topic, 0)),
        rolling_restart(cluster),
        too_few(cluster),
    ]
    run_cells(matrix, "a cluster of three", cells, set_up(bootstrap=cluster.bootstrap_servers), tell)


@pytest.mark.faults
def test_a_lane_can_be_opened_while_the_broker_that_was_taken_for_the_controller_is_dead(
    cluster: KafkaCluster,
) -> None:
    settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
    asking = [Topics(admin_client(settings), timeout_s=90.0, create=False) for _ in range(_CLIENTS)]
    # Descriptions go to the controller; the cluster's id is asked of any broker.
    assert {topics.partitions("nothing") for topics in asking} == {0}
    cluster.nodes[1].kill()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        assert set(pool.map(lambda topics: topics.partitions("nothing"), asking)) == {0}
