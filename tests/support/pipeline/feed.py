"""Session events with everything that goes wrong in them, written to a topic while the test runs."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from typing import Self

from confluent_kafka import Producer

from examples.clickstream.anomalies import Anomalies
from examples.clickstream.events import END, START, Record, encode
from examples.clickstream.generator import Shape, generate
from examples.clickstream.producer import TopicWriter, paced
from service.settings import KafkaSettings

ANOMALIES = Anomalies(duplicates=0.05, orphans=0.03, restarts=0.03, malformed=0.03, missing_ends=0.03)
ENTRIES = 10


def rounds(
    seed: int, sessions: int, sessions_per_second: float, number: int | None = None
) -> Iterator[Record]:
    """Yield `number` rounds (None: without end) of `sessions` sessions; each round has the keys of the one before.

    The event time begins now. The last sessions of a round are still open when the next round begins.
    """
    start_ms = int(time.time() * 1000)
    every_ms = int(sessions * 1000 / sessions_per_second)
    numbers = count() if number is None else range(number)
    shapes = (
        Shape(
            sessions=sessions,
            sessions_per_second=sessions_per_second,
            entries=ENTRIES,
            seed=(seed + n) % 2**32,
            start_ms=start_ms + n * every_ms,
        )
        for n in numbers
    )
    return chain.from_iterable(generate(shape, ANOMALIES) for shape in shapes)


def clean(seed: int, sessions: int) -> Iterator[Record]:
    """Yield sessions in which nothing goes wrong, and none is left open."""
    shape = Shape(
        sessions=sessions,
        sessions_per_second=100,
        entries=ENTRIES,
        seed=seed,
        start_ms=int(time.time() * 1000),
    )
    return generate(shape, Anomalies())


def starts_of(keys: Sequence[str]) -> Iterator[Record]:
    """Yield a start of each key, so far ahead in event time that no silence closes the session."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    return (encode(key, START, ahead, "start", {}) for key in keys)


def ends_of(keys: Sequence[str]) -> Iterator[Record]:
    """Yield an end of each key."""
    now = datetime.now(UTC)
    return (encode(key, END, now, "end", {}) for key in keys)


def write(bootstrap: str, topic: str, records: Iterator[Record]) -> None:
    """Write all records as fast as Kafka takes them."""
    with TopicWriter(KafkaSettings(bootstrap_servers=bootstrap), topic) as writer:
        writer.write(records)


class Transactions:
    """A producer of session events that works in transactions. Use `with`: one that is open at the end is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"feed-{topic}",
                "partitioner": "murmur2_random",
                "transaction.timeout.ms": 600_000,
                "log_level": 3,
            }
        )
        self._producer.init_transactions(60)
        self._open = False

    def write(self, records: Iterable[Record]) -> None:
        """Write in the open transaction, or begin one; returns when Kafka has the records."""
        if not self._open:
            self._producer.begin_transaction()
            self._open = True
        for key, value, _ in records:
            self._producer.produce(self._topic, value, key)
        assert self._producer.flush(60) == 0

    def end(self, *, commit: bool) -> None:
        """Commit or abort what was written."""
        if commit:
            self._producer.commit_transaction(60)
        else:
            self._producer.abort_transaction(60)
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self.end(commit=False)
        self._producer.close()


class Feeder:
    """Writes records when their event time has come, in a thread, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, records: Iterator[Record]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._records = records
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.written = 0
        """Records so far."""

    def is_writing(self) -> bool:
        """Whether it continues; it ends by itself only where Kafka refused a record."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Write nothing more; returns when Kafka has what was written."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with TopicWriter(KafkaSettings(bootstrap_servers=self._bootstrap), self._topic) as writer:
            for group in paced(self._records, 1, wait=self._stop.wait):
                writer.write(group)
                self.written += len(group)
                if self._stop.is_set():
                    return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
