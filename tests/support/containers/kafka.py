"""A Kafka as a container, with the settings of devstack's single node."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devstack.kafka import ONE_NODE, new_cluster_id
from devstack.processes.port import LOOPBACK
from tests.support.containers.server import ContainerServer
from tests.support.engine.stand_ins import KAFKA

_CONTROLLER_PORT = 9093
_HEAP = "-Xmx512m"
_DATA = "/var/lib/kafka/data"


def variable(setting: str) -> str:
    """The variable by which the image takes a broker setting."""
    return "KAFKA_" + setting.replace("_", "__").replace("-", "___").replace(".", "_").upper()


class ContainerKafka(ContainerServer):
    """The image apache/kafka:4.2.1."""

    image = KAFKA

    @property
    def bootstrap_servers(self) -> str:
        """127.0.0.1:port"""
        return f"{LOOPBACK}:{self.port}"

    def container_port(self) -> int:
        """The port of the host: so 127.0.0.1:port leads to the broker for clients outside and for the broker itself inside."""
        return self.port

    def variables(self) -> dict[str, str]:
        """devstack's settings, listeners for the host's clients, a cluster of its own."""
        settings = ONE_NODE | {
            "listeners": f"PLAINTEXT://0.0.0.0:{self.port},CONTROLLER://{LOOPBACK}:{_CONTROLLER_PORT}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": f"{ONE_NODE['node.id']}@{LOOPBACK}:{_CONTROLLER_PORT}",
            "log.dirs": _DATA,
        }
        variables = {variable(name): value for name, value in settings.items()}
        return variables | {"CLUSTER_ID": new_cluster_id(), "KAFKA_HEAP_OPTS": _HEAP}

    def answers(self) -> bool:
        """Whether it lists its brokers."""
        try:
            # The proxy in front of the container accepts connections before the broker does.
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False
