"""The job's consumer group, as lag tools and administrators see and change it."""

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.reading import end_offsets


class ConsumerGroup:
    """One group's offsets in one topic."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        """The group need not exist yet."""
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def lag(self) -> dict[int, int]:
        """{partition: records after the group's offset}, as any lag tool computes it."""
        asked = ConsumerGroupTopicPartitions(self._group)
        (answer,) = self._admin.list_consumer_group_offsets([asked]).values()
        offsets = {place.partition: place.offset for place in answer.result().topic_partitions}
        return {number: end - max(0, offsets.get(number, 0)) for number, end in self._ends().items()}

    def move(self, *, to_end: bool) -> None:
        """Set the offsets to the topic's end or to its beginning, as an administrator may."""
        places = [
            TopicPartition(self._topic, number, end if to_end else 0) for number, end in self._ends().items()
        ]
        asked = ConsumerGroupTopicPartitions(self._group, places)
        (answer,) = self._admin.alter_consumer_group_offsets([asked]).values()
        answer.result()

    def delete(self) -> None:
        """Delete the group."""
        (answer,) = self._admin.delete_consumer_groups([self._group]).values()
        answer.result()

    def _ends(self) -> dict[int, int]:
        ends = end_offsets(self._bootstrap, [self._topic], committed=False)
        return {number: end for (_, number), end in ends.items()}
