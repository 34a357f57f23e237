"""Reading a topic from its beginning, as a `read_committed` consumer does."""

import time
from collections.abc import Iterator

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_TIMEOUT_S = 60.0
_SILENCE_S = 60.0
_POLL_S = 0.1
_AT_ONCE = 10_000


class TopicReader:
    """A read_committed consumer of a whole topic, from its beginning."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench-outputs",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 3,
            }
        )
        self._partitions = list(self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in self._partitions]
        )
        self._reached = dict.fromkeys(self._partitions, 0)

    def __enter__(self) -> "TopicReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[Message]:
        """Return what came meanwhile: at most 10,000 records. Raises KafkaException."""
        records = []
        for message in self._consumer.consume(_AT_ONCE, timeout_s):
            if (error := message.error()) is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # A position stops short of the marker that ends a transaction; the end of the partition does not.
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self._reached[partition] = offset
            else:
                raise KafkaException(error)
        return records

    def messages_to_the_end(self) -> Iterator[Message]:
        """Yield all that is committed now and was not read yet. Raises KafkaException, RuntimeError after a minute's silence."""
        wanted = self.stable_offsets()
        moved = time.monotonic()
        while any(self._reached[number] < offset for number, offset in wanted.items()):
            before = dict(self._reached)
            # `consume` waits for as many records as it was asked for: a short time, or the end is noticed late.
            records = self.poll(_POLL_S)
            if records or self._reached != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > _SILENCE_S:
                raise RuntimeError(f"topic {self._topic}: no record and no end within {_SILENCE_S:g} s")
            yield from records

    def stable_offsets(self) -> dict[int, int]:
        """Where a read_committed consumer has to stop: the end, or the oldest open transaction."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(
            {TopicPartition(self._topic, number): latest for number in self._partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        return {place.partition: answer.result().offset for place, answer in asked.items()}
