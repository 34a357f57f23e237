"""Sessions as they happen, so many starts a second, from as many processes as that needs; they say so when they fall behind."""

import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any, Self

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Producer

from benchmarks.suite.load.latencies import SentEnd
from benchmarks.suite.load.schedule import TICK_MS, Schedule, patterns

RATE_OF_A_PROCESS = 1_000.0
"""Sessions of 102 events that one process sends a second with two thirds of a core; more come from several."""

_SLOW_S = 120.0
_OPTIONS: dict[str, str | int | float | bool] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    "log_level": 3,
}


@dataclass
class Sent:
    """What was sent."""

    ends: dict[bytes, SentEnd] = field(default_factory=dict)
    """By session key, where the broker has the end event."""
    behind: list[tuple[float, float]] = field(default_factory=list)
    """(moment, seconds since 1970; how much later than due it was sent, in seconds), for each second of each process the greatest."""

    def behind_s(self, begin_s: float, end_s: float) -> float:
        """Return the most that the senders were behind within a time: what it sent then came in a burst later."""
        return max((late for moment, late in self.behind if begin_s <= moment < end_s), default=0.0)


class Senders:
    """Processes that send sessions to a topic with LogAppendTime while `with` lasts, or until `stop`."""

    def __init__(self, bootstrap_servers: str, topic: str, rate: float, prefix: str) -> None:
        """`rate`: sessions that start in a second, in all. `prefix`: of their keys."""
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        count = max(1, math.ceil(rate / RATE_OF_A_PROCESS))
        self._answers: list[Connection] = []
        self._processes = []
        for number in range(count):
            answer, there = context.Pipe(duplex=False)
            arguments = (bootstrap_servers, topic, rate / count, f"{prefix}{number}-", self._stop, there)
            self._answers.append(answer)
            self._processes.append(context.Process(target=_send, args=arguments, daemon=True))
        self._sent: Sent | None = None

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        # Each says None when it begins: what follows counts from there, however long a process takes to start.
        for each in self._answers:
            answer = each.recv() if each.poll(_SLOW_S) else "no answer"
            if answer is not None:
                raise RuntimeError(f"a process that sends the events did not start: {answer}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for process in self._processes:
            if self._sent is None:
                process.kill()
            process.join()

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [process.pid for process in self._processes if process.pid is not None]

    def stop(self) -> Sent:
        """Start no more sessions, send those that have started to their ends at once, and return what Kafka has of all."""
        if self._sent is None:
            self._stop.set()
            sent = Sent()
            for each in self._answers:
                if not each.poll(_SLOW_S):
                    raise RuntimeError("a process that sends the events does not answer")
                answer: Sent | str = each.recv()
                if isinstance(answer, str):
                    raise RuntimeError(f"a process that sends the events failed: {answer}")
                sent.ends |= answer.ends
                sent.behind += answer.behind
            self._sent = sent
        return self._sent


def _send(
    bootstrap_servers: str, topic: str, rate: float, prefix: str, stop: Event, answer: Connection
) -> None:
    try:
        answer.send(_sent(bootstrap_servers, topic, rate, prefix, stop, lambda: answer.send(None)))
    except Exception as error:  # noqa: BLE001 - raised by the process that asks
        answer.send(f"{type(error).__name__}: {error}")


def _sent(
    bootstrap_servers: str,
    topic: str,
    rate: float,
    prefix: str,
    stop: Event,
    begun: Callable[[], None],
) -> Sent:
    sent, refused = Sent(), []
    schedule = Schedule(rate, prefix, patterns(prefix))

    def report(error: KafkaError | None, message: Any) -> None:
        kind, stamp_ms = message.timestamp()
        if error is not None or kind != TIMESTAMP_LOG_APPEND_TIME:
            refused.append(error.str() if error else f"topic {topic} does not have LogAppendTime")
        else:
            sent.ends[message.key()] = SentEnd(stamp_ms / 1000, time.time())

    producer = Producer(dict(_OPTIONS) | {"bootstrap.servers": bootstrap_servers})
    produce = producer.produce
    begun()
    began, ticks = time.monotonic(), 0
    while not (stopping := stop.is_set()) or not schedule.is_empty:
        late = time.monotonic() - (began + ticks * TICK_MS / 1000)
        if late < 0 and not stopping:
            producer.poll(min(-late, TICK_MS / 1000))
            continue
        if not stopping:
            _keep_greatest(sent.behind, time.time(), late)
        for key, value, is_end in schedule.next(starting=not stopping):
            if is_end:
                produce(topic, value, key, on_delivery=report)
            else:
                produce(topic, value, key)
        producer.poll(0)
        ticks += 1
        if refused:
            raise RuntimeError(refused[0])
    if producer.flush(_SLOW_S):
        raise RuntimeError("Kafka does not take the events")
    return sent


def _keep_greatest(behind: list[tuple[float, float]], now_s: float, late_s: float) -> None:
    """Keep one entry for each second."""
    if not behind or int(behind[-1][0]) < int(now_s):
        behind.append((now_s, late_s))
    elif late_s > behind[-1][1]:
        behind[-1] = (now_s, late_s)
