"""What Kafka says of the input topics: their ids, partitions and bounds; and the offsets shown to lag tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from db.errors import ContinuityError, SettingsError, UnavailableError
from db.settings import KafkaSettings
from db.topic_ids import topic_id_text
from spark_job.offsets import Offsets, TopicPartition
from spark_job.source import source_number

log = structlog.get_logger()


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
        """Return the partition behind each source number."""
        return {
            source_number(index, partition): TopicPartition(topic_id, partition)
            for index, (topic, topic_id) in enumerate(self.ids.items())
            for partition in self.partitions[topic]
        }


class KafkaInput:
    """Administrative questions about the input; a client that lives as long as the job."""

    def __init__(self, kafka: KafkaSettings, topics: Sequence[str], consumer_group: str) -> None:
        self._kafka = kafka
        self._topics = list(topics)
        self._admin = AdminClient(kafka.client())
        self._group = consumer_group
        self._consumer = (
            Consumer(
                kafka.client()
                | {"group.id": consumer_group, "enable.auto.commit": False, "on_commit": self._on_commit}
            )
            if consumer_group
            else None
        )

    def describe(self) -> InputTopics:
        """Ask for ids and partitions.

        Raises SettingsError when a topic does not exist, UnavailableError when Kafka does not answer.
        """
        answers = self._admin.describe_topics(
            TopicCollection(self._topics), request_timeout=self._kafka.request_timeout_s
        )
        ids, partitions = {}, {}
        for topic, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise SettingsError(
                        f"[source] topics: {topic!r} does not exist at {self._kafka.bootstrap_servers}. Create it, or correct the name."
                    ) from error
                raise self._unavailable(error) from error
            ids[topic] = topic_id_text(description.topic_id)
            partitions[topic] = sorted(partition.id for partition in description.partitions)
        return InputTopics({topic: ids[topic] for topic in self._topics}, partitions)

    def describe_unchanged(self, expected: InputTopics) -> InputTopics:
        """Describe the topics as they are now, with partitions added since.

        Raises ContinuityError when one has another id than `expected`: it was deleted and made again.
        """
        try:
            now = self.describe()
        except SettingsError as error:
            raise ContinuityError(
                f"an input topic was deleted while the job read it: {error} One that is made again is another topic."
            ) from error
        for topic, topic_id in expected.ids.items():
            if now.ids[topic] != topic_id:
                raise ContinuityError(
                    f"input topic {topic!r} was deleted and made again: its id is {now.ids[topic]}, the offsets belong to "
                    f"{topic_id}. Nothing was written. Sessions that were open in the old topic cannot be completed from it."
                )
        return now

    def bounds(self, topics: InputTopics, where: str) -> Offsets:
        """Return the `earliest` or `latest` offset of every partition. Raises UnavailableError."""
        spec = OffsetSpec.earliest() if where == "earliest" else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {
            KafkaTopicPartition(topic, partition): spec
            for topic, numbers in topics.partitions.items()
            for partition in numbers
        }
        answers = self._admin.list_offsets(wanted, request_timeout=self._kafka.request_timeout_s)
        try:
            return Offsets(
                {
                    TopicPartition(topics.ids[place.topic], place.partition): answer.result().offset
                    for place, answer in answers.items()
                }
            )
        except KafkaException as error:
            raise self._unavailable(error) from error

    def show_progress(self, end: Offsets, topics: InputTopics) -> None:
        """Commit offsets to the consumer group, for lag tools only; recovery never reads them, so a failure is only logged."""
        if self._consumer is None:
            return
        names = topics.names
        offsets = [
            KafkaTopicPartition(names[place.topic_id], place.partition, offset)
            for place, offset in end.items()
        ]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._consumer.poll(0)  # serves the client's queue; the consumer subscribes to nothing
        except KafkaException as error:
            self._on_commit(error.args[0], [])

    def _on_commit(self, error: KafkaError | None, _offsets: list[KafkaTopicPartition]) -> None:
        if error is not None:
            log.warning("group_offsets_not_committed", group=self._group, error=error.str())

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()

    def _unavailable(self, error: KafkaException) -> UnavailableError:
        return UnavailableError(
            f"Kafka at {self._kafka.bootstrap_servers} did not answer: {error.args[0].str()}. "
            "Check [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS) and [kafka.options]."
        )
