"""Which Kafka cluster answers."""

import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaException

from service.kafka.client import KafkaAdmin


class Cluster(NamedTuple):
    """The cluster that answers at `bootstrap_servers`. `brokers`: its present number of brokers."""

    cluster_id: str
    brokers: int


def cluster(
    admin: KafkaAdmin, topic: str | None, timeout_s: float, give_up: Callable[[], bool] = lambda: False
) -> Cluster:
    """Return the cluster that answers now. Raises KafkaException, the last failure, after `timeout_s` or when `give_up` returns true.

    Requests the metadata of `topic`, which need not exist; None requests all topics. `describe_cluster` is not used, because it ends the
    process while no broker is registered (an assertion of librdkafka 2.16, rdkafka_admin.c: rko_result).
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = admin.ask(lambda client: client.list_topics(topic, timeout=min(1.0, timeout_s)))
            return Cluster(str(found.cluster_id), len(found.brokers))
        except KafkaException:
            if give_up() or time.monotonic() > deadline:
                raise


def cluster_id(admin: KafkaAdmin, timeout_s: float) -> str:
    """Return the id of the cluster that answers now, as `cluster` does."""
    return cluster(admin, None, timeout_s).cluster_id
