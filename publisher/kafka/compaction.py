"""Which topics are compacted: Kafka keeps the newest record of each key there, so a record that is missing may have been superseded."""

from collections.abc import Callable, Iterable

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them, without saying so to mypy
    AdminClient,
    ConfigResource,
    ResourceType,
)

from publisher.kafka.clients import answer
from service.kafka_rights import needing


def compacted_topics(
    admin: AdminClient, names: Iterable[str], timeout_s: float, give_up: Callable[[], bool] = lambda: False
) -> set[str]:
    """Return those of the topics, which must exist, whose `cleanup.policy` names compact. Raises KafkaException."""
    found = set()
    for name in names:
        resource = ConfigResource(ResourceType.TOPIC, name)
        asked = admin.describe_configs([resource], request_timeout=timeout_s)[resource]
        with needing("DescribeConfigs", "topic", name):
            policy = answer(asked, give_up)["cleanup.policy"].value
        if "compact" in str(policy).split(","):
            found.add(name)
    return found
