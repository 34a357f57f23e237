"""Asks Kafka which output topics exist, and between which offsets the audit reads them."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from outbox_consumer.reading import ConsumerPosition
from publisher.kafka.compaction import compacted_topics
from service.errors import UnavailableError
from service.kafka.client import QUIET, admin_client, failure_of
from service.kafka.cluster import cluster_id
from service.kafka.topic_ids import topic_id_text
from service.kafka.topics import existing_topics, partition_offsets
from service.logins.kafka import logged_in
from service.settings import KafkaSettings

T = TypeVar("T")

# The leader of a partition is unknown just after its topic was created, and while the leader moves.
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

_MOVING_GROUP = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

Offsets = list[dict[str, int]]
"""Offsets by topic number, then by partition (as text, as in JSON)."""


class Topic(NamedTuple):
    """An output topic as Kafka describes it now. `topic_id`: None if the topic does not exist."""

    name: str
    topic_id: str | None
    partitions: int


class Broker:
    """Queries the cluster that the outputs went to. Raises UnavailableError if it does not answer, RefusedError if it refuses."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = admin_client(settings)

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        try:
            return cluster_id(self._admin, self._settings.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._settings, error) from error

    def describe(self, names: Sequence[str]) -> list[Topic]:
        """Describe topics, including those that no longer exist."""
        try:
            found = existing_topics(self._admin, names, self._settings.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._settings, error) from error
        return [
            Topic(name, topic_id_text(found[name].topic_id), len(found[name].partitions))
            if name in found
            else Topic(name, None, 0)
            for name in names
        ]

    def compacted(self, topics: Sequence[Topic]) -> set[str]:
        """Return the names of the topics that Kafka compacts."""
        there = [topic.name for topic in topics if topic.topic_id is not None]
        try:
            return compacted_topics(self._admin, there, self._settings.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._settings, error) from error

    def ends(self, topics: Sequence[Topic]) -> Offsets:
        """Return the high watermarks: the audit reads no record at or above them."""
        return self._settled(lambda _: self._offsets(topics, "latest"), _MOVING)

    def lows(self, topics: Sequence[Topic]) -> Offsets:
        """Return the low watermarks: records below them are deleted."""
        return self._settled(lambda _: self._offsets(topics, "earliest"), _MOVING)

    def group_positions(self, group: str, names: Sequence[str]) -> list[ConsumerPosition]:
        """Return the offsets that a consumer group has committed in these topics as they are now."""
        topics = {topic.name: topic for topic in self.describe(names)}
        partitions = [
            TopicPartition(name, partition)
            for name, topic in topics.items()
            for partition in range(topic.partitions)
        ]
        return [
            ConsumerPosition(
                group, each.topic, each.partition, topics[each.topic].topic_id or "", 0, each.offset
            )
            for each in self._committed(group, partitions)
            if each.offset >= 0
        ]

    def _committed(self, group: str, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the committed offsets. Asks with a consumer.

        librdkafka ends the process if a broker answers an administrative client that it is not the group's coordinator. A new cluster
        answers so to its first group (librdkafka issue 5040).
        """
        options = QUIET | self._settings.client() | {"group.id": group, "enable.auto.commit": False}
        consumer = Consumer(logged_in(options))

        def ask(left_s: float) -> list[TopicPartition]:
            try:
                return consumer.committed(partitions, timeout=max(0.1, left_s))
            except KafkaException as error:
                raise failure_of(self._settings, error) from error

        try:
            return self._settled(ask, _MOVING_GROUP)
        finally:
            consumer.close()

    def _settled(self, ask: Callable[[float], T], moving: Collection[int]) -> T:
        """Ask again while Kafka answers that a leader or coordinator is moving. `ask` gets the number of seconds left."""
        deadline = time.monotonic() + self._settings.request_timeout_s
        while True:
            try:
                return ask(deadline - time.monotonic())
            except UnavailableError as error:
                cause = error.__cause__
                is_moving = isinstance(cause, KafkaException) and cause.args[0].code() in moving
                if not is_moving or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _offsets(self, topics: Sequence[Topic], which: Literal["earliest", "latest"]) -> Offsets:
        partitions = [(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
        try:
            offsets = partition_offsets(self._admin, partitions, which, self._settings.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._settings, error) from error
        return [
            {str(partition): offsets[topic.name, partition] for partition in range(topic.partitions)}
            for topic in topics
        ]
