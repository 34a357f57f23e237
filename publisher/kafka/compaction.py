"""Tells which topics are compacted. Kafka keeps only the newest record of each key there, so a missing record may be superseded."""

from collections.abc import Iterable

from service.kafka.client import KafkaAdmin
from service.kafka.topics import topic_configs


def compacted_topics(admin: KafkaAdmin, names: Iterable[str], timeout_s: float) -> set[str]:
    """Return the topics whose `cleanup.policy` includes compact. All topics must exist. Raises KafkaException."""
    configs = topic_configs(admin, names, timeout_s)
    return {
        name
        for name, config in configs.items()
        if "compact" in str(config["cleanup.policy"].value).split(",")
    }
