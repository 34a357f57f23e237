"""Reading an output topic from its beginning, as a `read_committed` consumer does, into a tally."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from benchmarks.support.outbox import PARTITIONS
from benchmarks.support.tally import Tally
from service.record_headers import headers_of

_BATCH = 2_000
_TIMEOUT_S = 30.0


class TopicReader:
    """One consumer of one topic; reads only while it is asked to."""

    def __init__(self, consumer: Consumer, topic: str, header: str, tally: Tally) -> None:
        """`header` carries an event's id."""
        self._consumer, self._topic, self._header = consumer, topic, header
        self.tally = tally
        self.appended: dict[int, int] = {}
        """{moment, ms since 1970: events that the broker appended then, each counted once}"""
        self.next_new: float | None = None
        """When the first event arrived that is new and was appended after `watch_from`, seconds since 1970."""
        self.watch_from = float("inf")
        self._at = dict.fromkeys(range(PARTITIONS), 0)

    def until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Read until something holds; False where nothing new came for so long."""
        last, before = time.monotonic(), self.tally.delivered
        while not is_done():
            self._read()
            if self.tally.delivered != before:
                last, before = time.monotonic(), self.tally.delivered
            elif time.monotonic() - last > timeout_s:
                return False
        return True

    def wait_for_records(self, count: int, timeout_s: float) -> None:
        """Wait, without reading, until there are so many, transaction markers included. Raises SystemExit where none came for so long."""
        last, before = time.monotonic(), -1
        while (now := sum(self._ends().values())) < count:
            if now != before:
                last, before = time.monotonic(), now
            elif time.monotonic() - last > timeout_s:
                raise SystemExit(
                    f"{self._topic} has {now} of {count} records, and none came for {timeout_s:g} s"
                )
            time.sleep(0.05)

    def to_the_end(self) -> None:
        """Read all that the topic has now: for when nobody writes any more."""
        ends = self._ends()
        while any(self._at[p] < end for p, end in ends.items()):
            self._read()

    def _ends(self) -> dict[int, int]:
        partitions = {number: TopicPartition(self._topic, number) for number in self._at}
        return {n: self._consumer.get_watermark_offsets(p, _TIMEOUT_S)[1] for n, p in partitions.items()}

    def _read(self) -> None:
        messages = self._consumer.consume(_BATCH, 0.05)
        now = time.time()
        for message in messages:
            error = message.error()
            if error is None:
                self._count(message, now)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Past the markers of transactions, which no consumer gets to see.
                self._at[_number(message.partition())] = _number(message.offset())
            elif error.fatal():
                raise SystemExit(f"{self._topic} cannot be read: {error}")

    def _count(self, message: Message, now: float) -> None:
        partition, offset = _number(message.partition()), _number(message.offset())
        self._at[partition] = offset + 1
        found = dict(headers_of(message)).get(self._header)
        event_id = found if isinstance(found, bytes) else str(found).encode()
        if self.tally.add(event_id, _bytes(message.key()), _bytes(message.value())):
            moment = message.timestamp()[1]
            self.appended[moment] = self.appended.get(moment, 0) + 1
            if self.next_new is None and moment >= 1_000 * self.watch_from:
                self.next_new = now

    def events_s(self) -> float:
        """Events per second, from the end of the first append to the last one's. The topic's records carry the time of their append."""
        first, last = min(self.appended), max(self.appended)
        return sum(count for at, count in self.appended.items() if at > first) / ((last - first) / 1_000)


def _number(value: int | None) -> int:
    assert value is not None
    return value


def _bytes(value: str | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@contextmanager
def topic_reader(bootstrap: str, topic: str, header: str, tally: Tally) -> Iterator[TopicReader]:
    """A reader at the topic's beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "fetch.max.bytes": 16 * 1024 * 1024,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        yield TopicReader(consumer, topic, header, tally)
    finally:
        consumer.close()
