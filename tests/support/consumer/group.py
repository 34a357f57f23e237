"""A Kafka of Python lists for the consumer kit: topics with commit markers, and a group whose members join only when they poll."""

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, TopicCollection, TopicPartition

from service.kafka.reading import NamedPartition

Send = Callable[..., None]
"""(partition, records, abort=False): writes a transaction to a real topic."""


class Record(NamedTuple):
    """What the tests write: the value names the output."""

    value: bytes
    outbox_id: str | None = None
    revision: int = 0
    replay: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    def all_headers(self) -> list[tuple[str, str | bytes | None]]:
        found: list[tuple[str, str | bytes | None]] = []
        if self.outbox_id is not None:
            found.append(("outbox-id", self.outbox_id.encode()))
        if self.revision:
            found.append(("outbox-revision", b"%d" % self.revision))
        if self.replay is not None:
            found.append(("outbox-replay", self.replay.encode()))
        return [*found, *self.headers]


class GivenMessage:
    """A message of confluent-kafka, as far as the kit looks at it."""

    def __init__(
        self, partition: NamedPartition, offset: int, record: Record | None, error: KafkaError | None = None
    ) -> None:
        self._partition, self._offset, self._record, self._error = partition, offset, record, error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return self._partition[0]

    def partition(self) -> int:
        return self._partition[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes | None:
        return None if self._record is None else self._record.value

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        return [] if self._record is None else self._record.all_headers()

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1_700_000_000_000

    def leader_epoch(self) -> int:
        return 0


class Topic:
    """`logs`: by partition; None is a commit marker, or a record that nobody sees. `low`: the first offset that is kept."""

    def __init__(self, partitions: int) -> None:
        self.topic_id = uuid.uuid4().hex[:22]
        self.logs: list[list[Record | None]] = [[] for _ in range(partitions)]
        self.low = [0] * partitions


class Broker:
    """One cluster and one group. Members get their partitions from `assign`, and learn of it when they poll."""

    def __init__(self, **topics: int) -> None:
        self.topics = {name: Topic(partitions) for name, partitions in topics.items()}
        self.members: list[Member] = []

    def append(self, topic: str, partition: int, *records: Record, marker: bool = True) -> None:
        """Write a transaction: its records and its marker."""
        self.topics[topic].logs[partition] += [*records, *([None] if marker else [])]

    def recreate(self, topic: str) -> None:
        self.topics[topic] = Topic(len(self.topics[topic].logs))

    def consumer(self, options: dict[str, Any]) -> Any:
        member = Member(self, options)
        self.members.append(member)
        return member

    def admin(self, options: dict[str, Any]) -> Any:
        return self

    def describe_topics(self, asked: TopicCollection, *, request_timeout: float) -> dict[str, Future[Any]]:
        (name,) = asked.topic_names
        answer: Future[Any] = Future()
        topic = self.topics[name]
        answer.set_result(
            SimpleNamespace(
                topic_id=topic.topic_id, partitions=[SimpleNamespace(id=n) for n in range(len(topic.logs))]
            )
        )
        return {name: answer}


class Member:
    """A consumer. `after_fetch` runs once, when something was fetched and nothing is done with it.

    `switch` is called before each poll, and when a poll has fetched something.
    """

    def __init__(self, broker: Broker, options: dict[str, Any]) -> None:
        self.options = options
        self.wanted: set[NamedPartition] = set()
        self.empty_polls = 0
        self.closed = False
        self.committed: dict[NamedPartition, int] = {}
        self.after_fetch: Callable[[], None] | None = None
        self.switch: Callable[[str], None] = lambda step: None
        self.lost = False
        self._broker = broker
        self._reads: dict[NamedPartition, int] = {}
        self._told: dict[NamedPartition, int] = {}

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._callbacks = callbacks
        if len(self._broker.members) == 0:
            self.wanted = {(t, n) for t in topics for n in range(len(self._broker.topics[t].logs))}

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._reads |= {(each.topic, each.partition): each.offset for each in partitions}

    def get_watermark_offsets(self, partition: TopicPartition, *, timeout: float) -> tuple[int, int]:
        topic = self._broker.topics[partition.topic]
        return topic.low[partition.partition], len(topic.logs[partition.partition])

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.committed |= {(each.topic, each.partition): each.offset for each in offsets}

    def close(self) -> None:
        self.closed = True

    def poll(self, timeout: float) -> GivenMessage | None:
        self.switch("poll")
        self._rebalance()
        found = self._take(1)
        self.empty_polls += not found
        if found and found[0].error() is None:
            self._fetched()
        return found[0] if found else None

    def consume(self, most: int, *, timeout: float) -> list[GivenMessage]:
        return self._take(most)

    def _fetched(self) -> None:
        self.switch("fetched")
        if self.after_fetch is not None:
            action, self.after_fetch = self.after_fetch, None
            action()

    def _rebalance(self) -> None:
        gone = [TopicPartition(*partition) for partition in sorted(self._reads.keys() - self.wanted)]
        if gone:
            self._callbacks["on_lost" if self.lost else "on_revoke"](self, gone)
            for each in gone:
                del self._reads[each.topic, each.partition]
                self._told.pop((each.topic, each.partition), None)
        new = [TopicPartition(*partition) for partition in sorted(self.wanted - self._reads.keys())]
        if new:
            self._callbacks["on_assign"](self, new)

    def _take(self, most: int) -> list[GivenMessage]:
        found: list[GivenMessage] = []
        for partition in sorted(self._reads):
            topic = self._broker.topics[partition[0]]
            log = topic.logs[partition[1]]
            offset = self._reads[partition]
            if offset > len(log) or offset < topic.low[partition[1]]:
                error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "no such offset")
                return [*found, GivenMessage(partition, offset, None, error)]
            while offset < len(log) and len(found) < most:
                record = log[offset]
                if record is not None:
                    found.append(GivenMessage(partition, offset, record))
                offset += 1
            self._reads[partition] = offset
            if offset == len(log) and self._told.get(partition) != offset and len(found) < most:
                self._told[partition] = offset
                found.append(GivenMessage(partition, offset, None, KafkaError(KafkaError._PARTITION_EOF)))
        return found
