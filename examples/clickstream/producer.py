"""Playing records into a topic: as fast as the broker takes them, or each when its time has come."""

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from examples.clickstream.events import Record
from service.settings import KafkaSettings

# Large batches, because preloading is about throughput; idempotence keeps each partition's order over retries.
_OPTIONS: dict[str, str | int | float | bool] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 524_288,
    "delivery.report.only.error": True,
    # Errors only: a broker that has just started makes librdkafka warn about what it then retries.
    "log_level": 3,
}
_FLUSH_TIMEOUT_S = 60.0
_LARGEST_GROUP = 10_000


class ProduceError(Exception):
    """Kafka did not take every record."""


class TopicWriter:
    """Writes records to one topic, keyed, so that a session stays in one partition. Close it, or use `with`."""

    def __init__(self, kafka: KafkaSettings, topic: str, *, with_timestamps: bool = False) -> None:
        """`with_timestamps` gives each record its event time as Kafka timestamp; else it has the time of sending.

        Where the event time is a field of the JSON, the time of sending is the better one: Kafka's retention goes by
        the timestamp and deletes what is older than a week, however lately it was written.
        """
        self._topic = topic
        self._with_timestamps = with_timestamps
        self._refused: KafkaError | None = None
        self._producer = Producer({**kafka.client(**_OPTIONS), "on_delivery": self._on_refusal})

    def write(self, records: Iterable[Record]) -> None:
        """Queue the records in their order; waits while the queue is full. Raises ProduceError for refused ones."""
        produce = self._producer.produce
        for key, value, at_ms in records:
            timestamp = at_ms if self._with_timestamps else 0
            while True:
                try:
                    produce(self._topic, value, key, timestamp=timestamp)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)
        self._check()

    def close(self) -> None:
        """Wait until Kafka has everything. Raises ProduceError when it has not after a minute, or refused a record."""
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        self._check()
        if left:
            raise ProduceError(
                f"{left} records for topic {self._topic!r} were not taken within {_FLUSH_TIMEOUT_S:g} s: is Kafka up?"
            )
        self._producer.close()  # now, not when it is collected: it would look for its broker until then

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._producer.purge()

    def _on_refusal(self, error: KafkaError | None, message: Message) -> None:
        self._refused = error or self._refused

    def _check(self) -> None:
        if self._refused is not None:
            raise ProduceError(
                f"topic {self._topic!r} refused a record: {self._refused.str()}; "
                "`python -m examples.clickstream.topics` creates the example's topics"
            )


def paced(
    records: Iterable[Record],
    speed_up: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[list[Record]]:
    """Yield the records in groups, each as soon as event time, run `speed_up` times as fast, has got there.

    `speed_up` 0 never waits. The first record is due at once. A `wait` that returns true, as Event.wait does, ends it.
    """
    group: list[Record] = []
    began = clock()
    first_ms: int | None = None
    for record in records:
        first_ms = record[2] if first_ms is None else first_ms
        due = began + (record[2] - first_ms) / 1000 / speed_up if speed_up else began
        if group and (len(group) >= _LARGEST_GROUP or due > clock()):
            yield group
            group = []
        while (early := due - clock()) > 0:
            if wait(early):
                return
        group.append(record)
    if group:
        yield group
