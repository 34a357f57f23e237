"""What an administrator does to the input topic under a running job."""

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from devstack.topics import create_topics
from service.kafka.topic_ids import topic_id_text
from tests.support.reading import end_offsets
from tests.support.servers.topic_limits import set_config
from tests.support.waiting import wait_until


class InputTopic:
    """One topic by name."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        """`partitions`: how many it has; it gets as many when it is made again."""
        self._bootstrap, self._name, self._partitions = bootstrap, name, partitions
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._id: str | None = None

    def id(self) -> str:
        """Its id, as the outbox writes it. Kafka is asked once: tests ask fifty times a second, and only `recreate` changes it."""
        if self._id is None:
            self._id = self._described_id()
        return self._id

    def _described_id(self) -> str:
        answer = self._admin.describe_topics(TopicCollection([self._name]))[self._name]
        return topic_id_text(answer.result().topic_id)

    def add_partitions(self, total: int) -> None:
        """Give it more partitions: from now on its keys go elsewhere."""
        (answer,) = self._admin.create_partitions([NewPartitions(self._name, total)]).values()
        answer.result()
        self._partitions = total

        def is_known() -> bool:
            return len(self._admin.list_topics(self._name, timeout=10).topics[self._name].partitions) == total

        # A busy broker answers first, and tells producers of the partitions seconds later.
        wait_until(is_known, f"{total} partitions of {self._name}", poll_s=0.1)

    def readable_ends(self) -> dict[int, int]:
        """{partition: end} as a read_committed consumer sees it."""
        ends = end_offsets(self._bootstrap, [self._name], committed=True)
        return {partition: end for (_, partition), end in ends.items()}

    def delete_records(self, before: dict[int, int]) -> None:
        """Delete what lies below {partition: offset}, as retention does. Call `Pipeline.expectation` first, which remembers it."""
        places = [TopicPartition(self._name, partition, offset) for partition, offset in before.items()]
        for answer in self._admin.delete_records(places).values():
            answer.result()

    def configure(self, name: str, value: str) -> None:
        """Change a setting of the topic."""
        set_config(self._bootstrap, self._name, name, value)

    def recreate(self) -> None:
        """Delete it and make it again: the same name, another id."""
        before = self.id()
        (deleted,) = self._admin.delete_topics([self._name], operation_timeout=60).values()
        deleted.result()

        def is_another() -> bool:
            create_topics(self._bootstrap, {self._name: (self._partitions, {})})
            return self._described_id() != before

        wait_until(is_another, "the new topic", poll_s=0.2)
        self._id = None
