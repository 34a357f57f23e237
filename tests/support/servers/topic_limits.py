"""Changes what a topic takes."""

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)


def set_limit(bootstrap: str, topic: str, size: int) -> None:
    """Set the topic's max.message.bytes."""
    set_config(bootstrap, topic, "max.message.bytes", str(size))


def set_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Set one setting of a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    asked = admin.incremental_alter_configs([resource])
    asked[resource].result(30)
