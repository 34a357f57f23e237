"""Who counts the outputs, the same for all contenders: a `read_committed` consumer in a process of its own."""

import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.transforms import OUTPUTS

_LAST = b"%02d" % (OUTPUTS - 1)
_AT_ONCE = 10_000
_SLOW_S = 120.0


@dataclass
class Arrivals:
    """When the sessions' last outputs came, in seconds since 1970. Pure: `note` is told of each read."""

    received: dict[bytes, float] = field(default_factory=dict)
    """By session key, the first time."""
    again: int = 0
    """Last outputs of sessions that had theirs already."""
    records: int = 0
    progress: list[tuple[float, int]] = field(default_factory=list)
    """(moment, sessions by then), one for each read that had the last output of a session."""

    def note(self, read: Iterable[tuple[bytes | None, bytes | None]], now_s: float) -> None:
        """Count the (key, value) of one read. See benchmarks.transforms: a value has the time, then the output's number."""
        before = len(self.received)
        for key, value in read:
            self.records += 1
            if key is not None and value is not None and value[14:16] == _LAST:
                if key in self.received:
                    self.again += 1
                else:
                    self.received[key] = now_s
        if len(self.received) > before:
            self.progress.append((now_s, len(self.received)))

    def reached(self, sessions: int) -> tuple[float, int]:
        """Return (moment, sessions by then) of the read with which so many had come. Raises ValueError where they have not."""
        for moment, count in self.progress:
            if count >= sessions:
                return moment, count
        raise ValueError(f"only {len(self.received)} of {sessions} sessions have come")


class Watcher:
    """Reads a topic from its beginning on while `with` lasts."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop, self._ready = context.Event(), context.Event()
        self._count: Synchronized[int] = context.Value("q", 0)
        self._answer, there = context.Pipe()
        self._arrivals: Arrivals | None = None
        self._process = context.Process(
            target=_watch,
            args=(bootstrap_servers, topic, partitions, self._stop, self._ready, self._count, there),
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._process.start()
        if not self._ready.wait(_SLOW_S):
            raise RuntimeError("the watcher did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._arrivals is None:
            self._process.kill()
        self._process.join()

    @property
    def sessions(self) -> int:
        """Whose last output has come by now."""
        return self._count.value

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def received(self) -> dict[bytes, float]:
        """Return when the last output of each session came, by now: in seconds since 1970, by session key."""
        if self._arrivals is None:
            self._answer.send(None)
            return self._answered().received
        return self._arrivals.received

    def stop(self) -> Arrivals:
        """Read no more, and return what came."""
        if self._arrivals is None:
            self._stop.set()
            self._arrivals = self._answered()
        return self._arrivals

    def _answered(self) -> Arrivals:
        if not self._answer.poll(_SLOW_S):
            raise RuntimeError("the watcher does not answer")
        answer: Arrivals | str = self._answer.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"the watcher failed: {answer}")
        return answer


def _watch(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    stop: Event,
    ready: Event,
    count: "Synchronized[int]",
    answer: Connection,
) -> None:
    try:
        answer.send(_read(bootstrap_servers, topic, partitions, stop, ready, count, answer))
    except Exception as error:  # noqa: BLE001 - raised by the process that asks
        answer.send(f"{type(error).__name__}: {error}")


def _read(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    stop: Event,
    ready: Event,
    count: "Synchronized[int]",
    asked: Connection,
) -> Arrivals:
    arrivals = Arrivals()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench-watcher",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # A reader that wants to know when a record can be read: it is told at once.
            "fetch.wait.max.ms": 10,
            "log_level": 3,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        ready.set()
        while not stop.is_set():
            # One record ends the wait; then all that is there already.
            first = consumer.consume(1, 0.1)
            while asked.poll():
                asked.recv()
                asked.send(arrivals)
            if not first:
                continue
            messages = first + consumer.consume(_AT_ONCE, 0)
            arrivals.note(
                ((each.key(), each.value()) for each in messages if each.error() is None), time.time()
            )
            count.value = len(arrivals.received)
    finally:
        consumer.close()
    return arrivals
