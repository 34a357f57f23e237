"""Sessions into the input topic: a backlog at once, or so many a second; and who receives the outputs of each."""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)

from benchmarks.pipeline.latency import SentEnd
from benchmarks.transforms import OUTPUTS, TOPIC
from examples.clickstream.events import Record
from examples.clickstream.generator import Shape, generate_blocks
from examples.clickstream.producer import TopicWriter, paced
from service.settings import KafkaSettings

BROKER_STAMPS = {"message.timestamp.type": "LogAppendTime"}
"""Settings of a topic whose records have the time at which the broker got them; a session's times are those then, which changes nothing
for sessions that are sent when they happen."""

_A_DAY = 86_400
_END = b'{"event_type":"end_event"'
_SLOW_S = 60.0


def is_end(record: Record) -> bool:
    """Whether a record ends its session."""
    return record[1].startswith(_END)


def preload(bootstrap_servers: str, topic: str, records: Iterable[list[Record]]) -> int:
    """Write blocks of records as fast as the broker takes them, with their own timestamps; return how many they were."""
    count = 0
    with TopicWriter(
        KafkaSettings(bootstrap_servers=bootstrap_servers), topic, with_timestamps=True
    ) as writer:
        for block in records:
            writer.write(block)
            count += len(block)
    return count


class Feeder:
    """A process that sends sessions as they happen, so many starts a second, until it is asked what it sent."""

    def __init__(self, bootstrap_servers: str, topic: str, rate: float, key_prefix: str) -> None:
        """`topic` must have BROKER_STAMPS."""
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._answer, there = context.Pipe(duplex=False)
        shape = Shape(
            int(rate * _A_DAY),
            sessions_per_second=rate,
            start_ms=int(time.time() * 1000),
            key_prefix=key_prefix,
        )
        arguments = (bootstrap_servers, topic, shape, self._stop, there)
        self._process = context.Process(target=_feed, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if error is not None:
            self._process.kill()
        self._process.join()

    def stop(self) -> dict[bytes, SentEnd]:
        """Send no more; return the sessions whose end Kafka has."""
        self._stop.set()
        if not self._answer.poll(_SLOW_S):
            raise RuntimeError("the process that sends the events does not answer")
        answer: dict[bytes, SentEnd] | str = self._answer.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"the process that sends the events failed: {answer}")
        return answer


def _feed(bootstrap_servers: str, topic: str, shape: Shape, stop: Event, answer: Connection) -> None:
    try:
        answer.send(_sent(bootstrap_servers, topic, shape, stop))
    except Exception as error:  # noqa: BLE001 - raised by the process that asks
        answer.send(f"{type(error).__name__}: {error}")


def _sent(bootstrap_servers: str, topic: str, shape: Shape, stop: Event) -> dict[bytes, SentEnd]:
    ends: dict[bytes, SentEnd] = {}
    refused: list[str] = []

    def report(error: KafkaError | None, message: Any) -> None:
        kind, stamp_ms = message.timestamp()
        if error is not None or kind != TIMESTAMP_LOG_APPEND_TIME:
            refused.append(error.str() if error else f"topic {topic} does not have LogAppendTime")
        else:
            ends[message.key()] = SentEnd(stamp_ms / 1000, time.time())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 5,
            "log_level": 3,
        }
    )
    for group in paced(chain.from_iterable(generate_blocks(shape)), 1, wait=stop.wait):
        for record in group:
            key, value, _ = record
            if is_end(record):
                producer.produce(topic, value, key, on_delivery=report)
            else:
                producer.produce(topic, value, key)
        producer.poll(0)
        if refused:
            raise RuntimeError(refused[0])
        if stop.is_set():
            break
    if producer.flush(_SLOW_S):
        raise RuntimeError("Kafka does not take the events")
    return ends


def send(bootstrap_servers: str, topic: str, records: Iterable[Record]) -> None:
    """Send a few records now; return when the broker has them."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "log_level": 3}
    )
    for key, value, _ in records:
        producer.produce(topic, value, key)
    if producer.flush(_SLOW_S):
        raise RuntimeError("Kafka does not take the events")


class Watcher:
    """A `read_committed` consumer in a thread: when each session's last output came, from now on."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self.received: dict[bytes, float] = {}
        """Seconds since 1970, by session key."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, number, OFFSET_END) for number in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _watch(self) -> None:
        last = b"%02d" % (OUTPUTS - 1)
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            now = time.time()
            if message is None or message.error() is not None:
                continue
            key, value = message.key(), message.value()
            # See benchmarks.transforms: the time, then the output's number.
            if key is not None and value is not None and value[14:16] == last:
                self.received.setdefault(key, now)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float, check: Callable[[], None]) -> None:
    """Wait, calling `check` meanwhile. Raises RuntimeError when the time is up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.02)


def without_ends(shape: Shape, ends: list[Record]) -> Iterator[list[Record]]:
    """Yield the shape's blocks without the end events, which are added to `ends`: all sessions stay open."""
    for block in generate_blocks(shape):
        ends += filter(is_end, block)
        yield [record for record in block if not is_end(record)]
