"""A read_committed consumer that watches output topics while a test continues, not only afterwards."""

import threading
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from service.kafka.record_headers import headers_of
from tests.support.reading import end_offsets
from tests.support.waiting import wait_until

_PUBLISHERS_HEADERS = {"outbox-id", "outbox-revision"}


class DeliveredEvent(NamedTuple):
    """One event as consumers of the output topics get it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    outbox_id: str
    revision: int = 0

    @property
    def own_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The transform's own, without the publisher's."""
        return tuple(header for header in self.headers if header[0] not in _PUBLISHERS_HEADERS)


class Watcher:
    """Watches whole topics from their first record on, in its own thread, in the order in which a consumer gets them."""

    def __init__(self, bootstrap: str, *topics: str, tolerant: bool = False) -> None:
        """`tolerant`: for tests that break Kafka itself. What was lost is read from its beginning again; else it is an error."""
        self.bootstrap = bootstrap
        self.topics = topics
        self.seen: list[DeliveredEvent] = []
        self._tolerant = tolerant
        self._reached: dict[tuple[str, int], int] = {}
        self._error: KafkaError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watcher",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest" if tolerant else "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        described = self._consumer.list_topics(timeout=30).topics
        self._consumer.assign(
            [
                TopicPartition(topic, partition, 0)
                for topic in topics
                for partition in described[topic].partitions
            ]
        )

    def has_read_to(self, ends: dict[tuple[str, int], int]) -> bool:
        """Whether it came to these end offsets. Only the consumer's end-of-partition event proves that: a position may stop short
        of a commit marker."""
        assert self._error is None, self._error
        return all(self._reached.get(place, 0) >= end for place, end in ends.items())

    def wait_until_all_read(self) -> None:
        """Return once it has read each partition to its end; fail if a transaction stays open."""

        def ends(*, committed: bool) -> dict[tuple[str, int], int]:
            return end_offsets(self.bootstrap, self.topics, committed=committed)

        wait_until(lambda: ends(committed=True) == ends(committed=False), "the end of every open transaction")
        high = ends(committed=False)
        wait_until(lambda: self.has_read_to(high), "reading to the end")

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, timeout=0.1):
                error = message.error()
                if error is None:
                    self.seen.append(_delivered(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._reached[message.topic() or "", message.partition() or 0] = message.offset() or 0
                elif not self._tolerant and not error.retriable():
                    self._error = error
                    return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def _delivered(message: Message) -> DeliveredEvent:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = headers_of(message)
    named = dict(headers)
    outbox_id = named["outbox-id"]
    assert outbox_id is not None
    return DeliveredEvent(
        topic,
        partition,
        offset,
        message.key() or b"",
        message.value(),
        tuple(headers),
        outbox_id.decode(),
        int(named.get("outbox-revision") or b"0"),
    )
