"""A read_committed consumer that watches the output topics during the faults, not only afterwards."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition


class Seen(NamedTuple):
    """One delivered event."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The transform's own, without the publisher's."""
    outbox_id: str
    revision: int = 0


class Watcher:
    """Watches whole topics from their first record on, in its own thread, in the order in which a consumer gets them."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.seen: list[Seen] = []
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
                "auto.offset.reset": "error",
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
        """Whether it came to these end offsets. Only the consumer's end-of-partition event proves that."""
        assert self._error is None, self._error
        return all(self._reached.get(place, 0) >= end for place, end in ends.items())

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, timeout=0.1):
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                error = message.error()
                if error is None:
                    headers: dict[str, Any] = dict(message.headers() or [])
                    outbox_id: bytes = headers.pop("outbox-id")
                    revision: bytes = headers.pop("outbox-revision", b"0")
                    self.seen.append(
                        Seen(
                            topic,
                            partition,
                            offset,
                            message.key() or b"",
                            message.value(),
                            tuple(headers.items()),
                            outbox_id.decode(),
                            int(revision),
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._reached[topic, partition] = offset
                elif not error.retriable():
                    self._error = error
                    return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
