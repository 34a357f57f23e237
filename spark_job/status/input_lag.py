"""How many offsets of the input topics the ledger has not read yet. A separate client reads their ends, also while no query runs."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection

from service.errors import SettingsError
from service.kafka.client import KafkaAdmin, admin_client
from service.kafka.topic_ids import topic_id_text
from service.kafka.topics import partition_offsets
from service.settings import KafkaSettings
from spark_job.input.offsets import Offsets, TopicPartition

# How long a poll may wait for Kafka, over all topics. The next poll of Postgres waits as long.
_TIMEOUT_S = 6.0
_LEAST_S = 0.1


class Ends(NamedTuple):
    """The position of the ledger. `topics`: {topic id: topic} of the generation."""

    topics: Mapping[str, str]
    ends: Offsets


class InputLag:
    """Asks Kafka for the lag, by a separate administrative client. One thread uses it."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._admin: KafkaAdmin | None = None

    def read(self, at: Ends) -> list[tuple[str, int, int]]:
        """Return (topic, partition, offsets that a reader of committed records has still to read); empty while Kafka does not answer.

        A topic that was created again under the same name is left out: its offsets are others.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            return [
                (topic, partition, max(0, latest - at.ends.at(TopicPartition(topic_id, partition))))
                for topic_id, topic in at.topics.items()
                for partition, latest in self._latest(topic_id, topic, deadline).items()
            ]
        # The job itself reports wrong settings.
        except (KafkaException, SettingsError, OSError, TypeError, ValueError):
            return []

    def _latest(self, topic_id: str, topic: str, deadline: float) -> dict[int, int]:
        if self._admin is None:
            self._admin = admin_client(self._kafka)
        names = TopicCollection([topic])
        described = self._admin.answers(
            lambda client: client.describe_topics(names, request_timeout=_left(deadline))
        )
        found = described[topic].result()
        if topic_id_text(found.topic_id) != topic_id or not found.partitions:
            return {}
        places = [(topic, partition.id) for partition in found.partitions]
        ends = partition_offsets(self._admin, places, "latest", _left(deadline), committed=True)
        return {partition: end for (_, partition), end in ends.items()}


def _left(deadline: float) -> float:
    return max(_LEAST_S, deadline - time.monotonic())
