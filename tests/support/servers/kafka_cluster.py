"""A Kafka of three nodes (each broker and controller), so that one may go while the others serve."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devstack.kafka import Kafka, new_cluster_id
from devstack.processes.port import LOOPBACK, ReservedPort, is_listening

NODES = 3
_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A follower that died stops being waited for after this long (default 30 s).
    "replica.lag.time.max.ms": "5000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


class KafkaNode(Kafka):
    """One node of a cluster. It starts only beside a majority of the others."""

    def __init__(
        self,
        data_dir: Path,
        node: int,
        controllers: dict[int, ReservedPort],
        cluster_id: str,
        heap: str,
        settings: dict[str, str],
    ) -> None:
        """`controllers`: the port of each node's controller."""
        super().__init__(data_dir, fast=True, heap=heap, settings=_SETTINGS | settings, cluster_id=cluster_id)
        self.node = node
        self._controllers = controllers
        self._controller_port = controllers[node]

    def _server_settings(self) -> dict[str, str]:
        voters = (f"{node}@{LOOPBACK}:{port.number}" for node, port in self._controllers.items())
        return super()._server_settings() | {
            "node.id": str(self.node),
            "controller.quorum.voters": ",".join(voters),
        }

    def _answers(self) -> bool:
        """Whether the cluster counts this node among its brokers, by its own word."""
        if not is_listening(self.port):
            return False
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return self.node in client.list_topics(timeout=5).brokers
        except KafkaException:
            return False


class KafkaCluster:
    """Three nodes under one folder, with replicated topics of which two copies are enough. `with` starts and deletes it."""

    def __init__(
        self, directory: Path, *, heap: str = "320m", settings: dict[str, str] | None = None
    ) -> None:
        """Describe the nodes; nothing is started. `heap` is of each; `settings` are further broker settings by name."""
        controllers = {node: ReservedPort() for node in range(1, NODES + 1)}
        cluster_id = new_cluster_id()
        self.nodes = {
            node: KafkaNode(directory / f"node-{node}", node, controllers, cluster_id, heap, settings or {})
            for node in controllers
        }

    @property
    def bootstrap_servers(self) -> str:
        """Of all nodes."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def start(self, nodes: Iterable[int] | None = None) -> None:
        """Start those nodes (None: all) that do not run, at once; return when all of them serve.

        Raises DevstackError with the tail of a log; nothing is left running when one does not start for the first time.
        """
        wanted = [self.nodes[node] for node in (nodes or self.nodes)]
        # None of them answers before most of them run.
        with ThreadPoolExecutor(len(wanted)) as pool:
            list(pool.map(KafkaNode.start, wanted))

    def leader(self, topic: str, partition: int) -> KafkaNode:
        """The node that leads a partition. Raises KafkaException, KeyError where there is none at this moment."""
        running = next(node for node in self.nodes.values() if node.is_running())
        client = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
        return self.nodes[client.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader]

    def destroy(self) -> None:
        """Kill all nodes and delete their data."""
        for node in self.nodes.values():
            node.destroy()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()
