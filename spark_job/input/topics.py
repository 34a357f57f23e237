"""Ask Kafka about the input topics: their ids, partitions and bounds; show offsets to lag tools.

recovery/findings.py decides what a start does about topics that were created again, and about offsets that Kafka has lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import structlog
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from service.errors import ContinuityError, SettingsError
from service.kafka.client import admin_client, failure_of
from service.kafka.topic_ids import NO_ID, topic_id_text
from service.kafka.topics import existing_topics, offsets_at, partition_offsets, topic_configs
from service.settings import KafkaSettings, Settings
from spark_job.input.group_offsets import GroupOffsets
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.source import source_number

log = structlog.get_logger()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JOB_NEEDS = "DescribeConfigs and Read"


@dataclass(frozen=True)
class InputTopics:
    """The input topics, as they were at one moment."""

    ids: Mapping[str, str]  # {topic: topic id}, in the order of the settings
    partitions: Mapping[str, Sequence[int]]  # {topic: its partitions}

    @property
    def names(self) -> dict[str, str]:
        """{topic id: topic}."""
        return {topic_id: topic for topic, topic_id in self.ids.items()}

    def places(self) -> dict[int, TopicPartition]:
        """Return the partition of each source number."""
        return {
            source_number(index, partition): TopicPartition(topic_id, partition)
            for index, (topic, topic_id) in enumerate(self.ids.items())
            for partition in self.partitions[topic]
        }


class _TopicMissingError(SettingsError):
    """Kafka has no topic of this name."""


class KafkaInput:
    """Administrative requests about the input, and the job's consumer group. The client lives until `close`."""

    def __init__(
        self, kafka: KafkaSettings, topics: Sequence[str], consumer_group: str, needs: str = _JOB_NEEDS
    ) -> None:
        """`needs`: the rights on the input topics, for messages."""
        self._kafka, self._needs = kafka, f"{needs} on the input topics"
        self._topics = list(topics)
        self._admin = admin_client(kafka)
        self._group = GroupOffsets(self._admin, consumer_group, kafka.request_timeout_s)

    def describe(self) -> InputTopics:
        """Return the topics with their ids and partitions.

        Raises SettingsError when a topic does not exist, UnavailableError when Kafka does not answer, RefusedError when it refuses.
        """
        try:
            found = existing_topics(self._admin, self._topics, self._kafka.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._kafka, error, self._needs) from error
        ids, partitions = {}, {}
        for topic in self._topics:
            if topic not in found:
                raise _TopicMissingError(
                    f"[source] topics: {topic!r} does not exist at {self._kafka.bootstrap_servers}. Create it, or correct the name."
                )
            ids[topic] = topic_id_text(found[topic].topic_id)
            if ids[topic] == NO_ID:
                raise SettingsError(
                    f"the brokers at {self._kafka.bootstrap_servers} give topics no ids, by which the job notices that {topic!r} was "
                    "deleted and created again. Kafka 3.1 or newer is needed (or a service that passes ids on)"
                )
            partitions[topic] = sorted(partition.id for partition in found[topic].partitions)
        return InputTopics(ids, partitions)

    def check_policies(self) -> None:
        """Raise SettingsError if Kafka compacts an input topic: compaction deletes events of open sessions."""
        try:
            configs = topic_configs(self._admin, self._topics, self._kafka.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._kafka, error, self._needs) from error
        for topic, config in configs.items():
            policy = str(config["cleanup.policy"].value)
            if "compact" in policy:
                raise SettingsError(
                    f"input topic {topic!r} has cleanup.policy={policy}: compaction deletes all but the newest event of a key, and "
                    "sessions with them. Set cleanup.policy=delete on it, or read another topic"
                )

    def describe_unchanged(self, expected: InputTopics) -> InputTopics:
        """Describe the topics as they are now, with partitions added since.

        Raises ContinuityError when one was deleted, or has another id than `expected`: it was created again.
        """
        try:
            now = self.describe()
        except _TopicMissingError as error:
            raise ContinuityError(
                f"an input topic was deleted while the job read it: {error} One that is created again is another topic."
            ) from error
        for topic, topic_id in expected.ids.items():
            if now.ids[topic] != topic_id:
                raise ContinuityError(
                    f"input topic {topic!r} was deleted and created again: its id is {now.ids[topic]}, the offsets belong to "
                    f"{topic_id}. Nothing was written. Sessions that were open in the old topic cannot be completed from it."
                )
        return now

    def bounds(self, topics: InputTopics, where: Literal["earliest", "latest", "readable"]) -> Offsets:
        """Return an offset for every partition: its first one, its end, or the end that a read_committed reader sees.

        Raises UnavailableError, RefusedError.
        """
        places = [(topic, number) for topic, numbers in topics.partitions.items() for number in numbers]
        try:
            found = partition_offsets(
                self._admin,
                places,
                "earliest" if where == "earliest" else "latest",
                self._kafka.request_timeout_s,
                committed=where == "readable",
            )
        except KafkaException as error:
            raise failure_of(self._kafka, error, self._needs) from error
        return Offsets(
            {TopicPartition(topics.ids[topic], number): offset for (topic, number), offset in found.items()}
        )

    def first_at(self, topics: InputTopics, at: datetime) -> Offsets:
        """Return the offset of each partition's first committed record of a time or later. Leaves out partitions without such a record.

        Raises UnavailableError, RefusedError.
        """
        places = [(topic, number) for topic, numbers in topics.partitions.items() for number in numbers]
        at_ms = -((_EPOCH - at) // timedelta(milliseconds=1))  # rounded up
        try:
            found = offsets_at(self._admin, places, at_ms, self._kafka.request_timeout_s)
        except KafkaException as error:
            raise failure_of(self._kafka, error, self._needs) from error
        return Offsets(
            {
                TopicPartition(topics.ids[topic], number): offset
                for (topic, number), offset in found.items()
                if offset is not None
            }
        )

    def show_progress(self, end: Offsets, topics: InputTopics) -> None:
        """Show offsets in the consumer group, for lag tools only; recovery never reads them, so a failure is only logged."""
        names = topics.names
        self._group.show(
            [
                KafkaTopicPartition(names[place.topic_id], place.partition, offset)
                for place, offset in end.items()
            ]
        )

    def close(self) -> None:
        """Close the clients, even if this object is still referenced."""
        self._group.close()
        self._admin.close()


@contextmanager
def kafka_input(settings: Settings, needs: str = _JOB_NEEDS) -> Iterator[KafkaInput]:
    """Open a KafkaInput for a command, without a consumer group, and close it at the end."""
    kafka = KafkaInput(settings.kafka, settings.source.topics, "", needs)
    try:
        yield kafka
    finally:
        kafka.close()
