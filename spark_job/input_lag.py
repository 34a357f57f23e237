"""How far the input topics are beyond what the ledger has passed, asked of Kafka beside the job: known also while no query runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from db.settings import KafkaSettings
from spark_job.offsets import Offsets, TopicPartition

# What a look may wait for Kafka; the metrics of Postgres wait with it.
_TIMEOUT_S = 3.0


class Ends(NamedTuple):
    """Where the ledger is. `topics`: {topic id: topic} of the generation."""

    topics: Mapping[str, str]
    ends: Offsets


class InputLag:
    """An administrative client of its own; one thread's."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._admin: AdminClient | None = None

    def read(self, at: Ends) -> list[tuple[str, int, int]]:
        """Return (topic, partition, offsets that a reader of committed records has before it); empty while Kafka does not answer."""
        try:
            return [
                (topic, partition, max(0, latest - at.ends.at(TopicPartition(topic_id, partition))))
                for topic_id, topic in at.topics.items()
                for partition, latest in self._latest(topic).items()
            ]
        # What is wrong with the settings, the job says itself.
        except (KafkaException, OSError, TypeError, ValueError):
            return []

    def _latest(self, topic: str) -> dict[int, int]:
        if self._admin is None:
            self._admin = AdminClient({"log_level": 0} | self._kafka.client())
        partitions = self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        spec: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {KafkaTopicPartition(topic, partition): spec for partition in partitions}
        if not wanted:
            return {}
        answers = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
        )
        return {place.partition: answer.result().offset for place, answer in answers.items()}
