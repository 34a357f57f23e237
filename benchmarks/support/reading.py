"""Counting what the publisher or Debezium sends into an output topic, and when it came."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Message

from benchmarks.support.tally import Tally
from benchmarks.support.topic_reader import TopicReader
from service.kafka.record_headers import headers_of


class TallyReader:
    """Reads one topic into a tally; reads only while it is asked to."""

    def __init__(self, reader: TopicReader, header: str, tally: Tally) -> None:
        """`header` carries an event's id."""
        self._reader, self._header = reader, header
        self.tally = tally
        self.appended: dict[int, int] = {}
        """{moment, ms since 1970: events that the broker appended then, each counted once}"""
        self.next_new: float | None = None
        """When the first event arrived that is new and was appended after `watch_from`, seconds since 1970."""
        self.watch_from = float("inf")

    def until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Read until something holds; False where nothing new came for so long."""
        last, before = time.monotonic(), self.tally.delivered
        while not is_done():
            messages, now = self._reader.poll(0.05), time.time()
            for message in messages:
                self._count(message, now)
            if self.tally.delivered != before:
                last, before = time.monotonic(), self.tally.delivered
            elif time.monotonic() - last > timeout_s:
                return False
        return True

    def wait_for_records(self, count: int, timeout_s: float) -> None:
        """Wait, without reading, until there are so many, transaction markers included. Raises SystemExit where none came for so long."""
        last, before = time.monotonic(), -1
        while (now := sum(self._reader.stable_offsets().values())) < count:
            if now != before:
                last, before = time.monotonic(), now
            elif time.monotonic() - last > timeout_s:
                raise SystemExit(f"there are {now} of {count} records, and none came for {timeout_s:g} s")
            time.sleep(0.05)

    def to_the_end(self) -> None:
        """Read all that the topic has now: for when nobody writes any more."""
        for message in self._reader.messages_to_the_end():
            self._count(message, time.time())

    def events_s(self) -> float:
        """Events per second, from the end of the first append to the last one's. The topic's records carry the time of their append."""
        first, last = min(self.appended), max(self.appended)
        return sum(count for at, count in self.appended.items() if at > first) / ((last - first) / 1_000)

    def _count(self, message: Message, now: float) -> None:
        found = dict(headers_of(message)).get(self._header)
        event_id = found if isinstance(found, bytes) else str(found).encode()
        if self.tally.add(event_id, message.key() or b"", message.value() or b""):
            moment = message.timestamp()[1]
            self.appended[moment] = self.appended.get(moment, 0) + 1
            if self.next_new is None and moment >= 1_000 * self.watch_from:
                self.next_new = now


@contextmanager
def tally_reader(bootstrap: str, topic: str, header: str, tally: Tally) -> Iterator[TallyReader]:
    """A reader at the topic's beginning."""
    with TopicReader(bootstrap, topic) as reader:
        yield TallyReader(reader, header, tally)
