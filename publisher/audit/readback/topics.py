"""The output topics: which of them are there, and between which offsets they are read."""

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from outbox_consumer.reading import ConsumerPosition
from publisher.kafka.clients import cluster_id
from publisher.kafka.compaction import compacted_topics
from service.errors import UnavailableError
from service.kafka.client import UNAUTHORISED, admin_client
from service.kafka.topic_ids import topic_id_text
from service.kafka.topics import existing_topics, partition_offsets
from service.settings import KafkaSettings

_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

Offsets = list[dict[str, int]]
"""By topic number, then partition (as text, as JSON has it)."""


class Topic(NamedTuple):
    """An output topic as Kafka describes it now; `topic_id` None: it does not exist."""

    name: str
    topic_id: str | None
    partitions: int


class Broker:
    """Questions to the cluster that the outputs went to. Raises UnavailableError when it does not answer."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = admin_client(settings)

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        try:
            return cluster_id(self._admin, self._settings.request_timeout_s)
        except KafkaException as error:
            raise unavailable(self._settings, error) from error

    def describe(self, names: Sequence[str]) -> list[Topic]:
        """Describe topics, also those that are gone."""
        try:
            found = existing_topics(self._admin, names, self._settings.request_timeout_s)
        except KafkaException as error:
            raise unavailable(self._settings, error) from error
        return [
            Topic(name, topic_id_text(found[name].topic_id), len(found[name].partitions))
            if name in found
            else Topic(name, None, 0)
            for name in names
        ]

    def compacted(self, topics: Sequence[Topic]) -> set[str]:
        """Return the names of those that Kafka compacts."""
        there = [topic.name for topic in topics if topic.topic_id is not None]
        try:
            return compacted_topics(self._admin, there, self._settings.request_timeout_s)
        except KafkaException as error:
            raise unavailable(self._settings, error) from error

    def ends(self, topics: Sequence[Topic]) -> Offsets:
        """Return the high watermarks: past them no record counted at this moment."""
        return self._settled(topics, "latest")

    def lows(self, topics: Sequence[Topic]) -> Offsets:
        """Return the low watermarks: what was below them is deleted."""
        return self._settled(topics, "earliest")

    def group_positions(self, group: str, names: Sequence[str]) -> list[ConsumerPosition]:
        """Return how far a consumer group has committed in these topics, as they are now."""
        asked = [ConsumerGroupTopicPartitions(group)]
        try:
            answers = self._admin.answers_within(
                self._settings.request_timeout_s,
                lambda client, wait_s: client.list_consumer_group_offsets(asked, request_timeout=wait_s),
            )
            committed = answers[group].result().topic_partitions
        except KafkaException as error:
            raise unavailable(self._settings, error) from error
        ids = {topic.name: topic.topic_id or "" for topic in self.describe(names)}
        return [
            ConsumerPosition(group, each.topic, each.partition, ids[each.topic], 0, each.offset)
            for each in committed
            if each.topic in ids and each.offset >= 0
        ]

    def _settled(self, topics: Sequence[Topic], which: Literal["earliest", "latest"]) -> Offsets:
        """Ask again while the leaders of a topic that was just made, or whose leader moved, are not known."""
        deadline = time.monotonic() + self._settings.request_timeout_s
        while True:
            try:
                return self._offsets(topics, which)
            except UnavailableError as error:
                cause = error.__cause__
                moving = isinstance(cause, KafkaException) and cause.args[0].code() in _MOVING
                if not moving or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _offsets(self, topics: Sequence[Topic], which: Literal["earliest", "latest"]) -> Offsets:
        places = [(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
        try:
            offsets = partition_offsets(self._admin, places, which, self._settings.request_timeout_s)
        except KafkaException as error:
            raise unavailable(self._settings, error) from error
        return [
            {str(partition): offsets[topic.name, partition] for partition in range(topic.partitions)}
            for topic in topics
        ]


def unavailable(settings: KafkaSettings, error: Exception) -> UnavailableError:
    """Return what to raise when Kafka does not answer, or refuses."""
    text = error.args[0].str() if isinstance(error, KafkaException) else str(error) or type(error).__name__
    if isinstance(error, KafkaException) and error.args[0].code() in UNAUTHORISED:
        return UnavailableError(
            f"Kafka at {settings.bootstrap_servers} refuses the audit: {text}. Grant the right, or correct [kafka.options]"
        )
    return UnavailableError(
        f"Kafka at {settings.bootstrap_servers} does not answer: {text}. Check [kafka] bootstrap_servers "
        "(OUTBOX_KAFKA__BOOTSTRAP_SERVERS)"
    )
