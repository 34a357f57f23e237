"""The settings of the Connect worker and of the connector, as an operator writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

TABLE = "public.outbox"
ID_HEADER = "id"
"""Of the event router: the row's column `id`, by which consumers tell duplicates."""
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_TEXT = "org.apache.kafka.connect.storage.StringConverter"


@dataclass(frozen=True)
class Choice:
    """What is chosen for a measurement."""

    is_exactly_once: bool = False
    """Kafka Connect's transactions for source connectors (KIP-618)."""
    offset_flush_ms: int = 1_000
    """How often Connect stores how far it is, where it is not exactly once: a kill repeats the rest. Its default is 60,000."""

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return "Debezium, exactly once" if self.is_exactly_once else "Debezium"


def debezium_choices(at_least_once: bool, exactly_once: bool, offset_flush_ms: int = 1_000) -> list[Choice]:
    """Those that were asked for."""
    asked = {False: at_least_once, True: exactly_once}
    return [Choice(which, offset_flush_ms) for which, is_asked in asked.items() if is_asked]


def worker_settings(
    bootstrap: str, port: int, group: str, plugins: Path, choice: Choice
) -> Mapping[str, str]:
    """Of the one worker of a distributed cluster; its topics are `group` with an ending."""
    return {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "group.id": group,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "1",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "1",
        "key.converter": _TEXT,
        "value.converter": _BYTES,
        "header.converter": _TEXT,
        "plugin.path": str(plugins),
        # A quicker start.
        "plugin.discovery": "service_load",
        "connector.client.config.override.policy": "All",
        "offset.flush.interval.ms": str(choice.offset_flush_ms),
        # The only worker need not wait for others.
        "scheduled.rebalance.max.delay.ms": "0",
        # A restarted worker waits until the group has forgotten the killed one; the broker allows no less.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1500",
        "exactly.once.source.support": "enabled" if choice.is_exactly_once else "disabled",
        # Connect's default is "acks = all" already; the rest is the publisher's.
        "producer.acks": "all",
        "producer.compression.type": "none",
        "producer.linger.ms": "5",
        "producer.batch.size": "1000000",
        "producer.buffer.memory": "134217728",
    }


def connector_settings(dsn: str, name: str, choice: Choice) -> Mapping[str, str]:
    """Of the connector; slot and publication have its name."""
    address = conninfo_to_dict(dsn)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "database.hostname": str(address["host"]),
        "database.port": str(address["port"]),
        "database.user": str(address["user"]),
        "database.password": str(address.get("password") or "none"),
        "database.dbname": str(address["dbname"]),
        "topic.prefix": name,
        "slot.name": name,
        # Instead of 10,000, for the slot of a killed worker.
        "slot.retry.delay.ms": "1000",
        "slot.max.retries": "60",
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "table.include.list": TABLE,
        # The table is empty when the connector begins, and nothing is deleted.
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "binary.handling.mode": "bytes",
        # Four times the defaults: a backlog is to be measured.
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        # The default of 500 would show in each single event's latency.
        "poll.interval.ms": "10",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": "${routedByValue}",
        "exactly.once.support": "required" if choice.is_exactly_once else "requested",
        "transaction.boundary": "poll",
    }
