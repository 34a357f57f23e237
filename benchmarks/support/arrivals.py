"""When events of each session reach a consumer."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from benchmarks.support.outbox import PARTITIONS

_AT_ONCE = 10_000
_ARRIVAL_S = 60.0


class Arrivals:
    """A read_committed consumer in a thread; notes when a certain event of each session arrives."""

    def __init__(self, bootstrap: str, topics: Sequence[str], offset: int, event: int) -> None:
        """`offset`: where it begins to read. `event`: which of a session's events counts; 1 is the first."""
        self.seen: dict[tuple[str, int], float] = {}
        """{(topic, number of the session): moment of time.perf_counter}"""
        self._event = event
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-arrivals",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, number, offset) for topic in topics for number in range(PARTITIONS)]
        )
        self._came = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_for(self, topic: str, session: int) -> float:
        """Return when a session's event came. Raises SystemExit where it does not."""
        key = (topic, session)
        with self._came:
            if not self._came.wait_for(lambda: key in self.seen, _ARRIVAL_S):
                raise SystemExit(f"session {session} did not arrive in {topic} within {_ARRIVAL_S:g} s")
            return self.seen[key]

    def _run(self) -> None:
        events: Counter[tuple[str, int]] = Counter()
        while not self._stop.is_set():
            # One record ends the wait; then all that is there already.
            messages, now = self._consumer.consume(1, 0.1), time.perf_counter()
            messages += self._consumer.consume(_AT_ONCE, 0) if messages else []
            with self._came:
                for message in messages:
                    if message.error() is None:
                        key = (message.topic() or "", int((message.key() or b"")[len("session-") :]))
                        events[key] += 1
                        if events[key] == self._event:
                            self.seen[key] = now
                self._came.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
