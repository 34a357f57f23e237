"""Kafka's input topic in memory, with every kind of event that a topic may hold, and what may happen to it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from service.errors import ContinuityError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.reading import RecordsGoneError
from spark_job.input.topics import InputTopics
from tests.support.reference.message import Message, in_blocks
from tests.support.reference.model import Record

TOPIC = "input"

Log = list[Record | None]
"""A partition's records by offset; None where a transaction was aborted or its marker stands."""


@dataclass
class LogPartition:
    """What Kafka has of a partition."""

    log: Log
    earliest: int = 0


@dataclass
class RandomLog:
    """The topic. It answers as `input.topics.KafkaInput` and as `input.reading.committed_records` do."""

    chance: random.Random
    clocked: bool = False
    """Clock records are among its records."""
    topic_id: str = ""
    partitions: list[LogPartition] = field(default_factory=list)
    visible: int = 0
    """The last partition may be added later."""

    def __post_init__(self) -> None:
        self.make()
        self.visible = max(1, self.visible - self.chance.randint(0, 1))

    def make(self) -> None:
        """Make the topic, or make it again."""
        self.topic_id = f"{self.chance.getrandbits(128):022x}"[:22]
        number = self.chance.randint(1, 3)
        self.partitions = [
            LogPartition(random_records(self.chance, at, clocked=self.clocked)) for at in range(number)
        ]
        self.visible = number

    def cut(self, partition: int, end: int) -> None:
        """Lose the end of a partition. What held the log of before keeps it."""
        self.partitions[partition].log = self.partitions[partition].log[:end]

    def go_on(self, partition: int) -> None:
        """Let producers write more."""
        self.partitions[partition].log += random_records(
            self.chance, partition, self.partitions[partition].log, clocked=self.clocked
        )

    def where(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic_id, partition)

    @property
    def earliest(self) -> Offsets:
        return Offsets({self.where(p): self.partitions[p].earliest for p in range(self.visible)})

    @property
    def latest(self) -> Offsets:
        return Offsets({self.where(p): len(self.partitions[p].log) for p in range(self.visible)})

    def describe(self) -> InputTopics:
        return InputTopics({TOPIC: self.topic_id}, {TOPIC: list(range(self.visible))})

    def describe_unchanged(self, expected: InputTopics) -> InputTopics:
        if self.topic_id != expected.ids[TOPIC]:
            raise ContinuityError("the topic was made again")
        return self.describe()

    def bounds(self, _topics: InputTopics, where: str) -> Offsets:
        return self.earliest if where == "earliest" else self.latest

    def show_progress(self, _end: Offsets, _topics: InputTopics) -> None:
        """Lag tools are not here."""

    def records(self, partition: int, start: int, end: int) -> list[Record]:
        """The committed ones of [start, end)."""
        if partition >= len(self.partitions):
            return []
        return [record for record in self.partitions[partition].log[start:end] if record is not None]

    def committed_records(
        self, _client: object, topic: str, partition: int, start: int, end: int, _timeout_s: float
    ) -> Iterator[list[Any]]:
        """Those that a rebuild reads."""
        if start < self.partitions[partition].earliest:
            raise RecordsGoneError(f"{topic}/{partition}: offset {start} is deleted")
        yield from in_blocks(map(Message, self.records(partition, start, end)))


def random_records(
    chance: random.Random, partition: int, before: Log | None = None, *, clocked: bool = False
) -> Log:
    """More of a partition: few keys used again and again, duplicates, restarts, orphans, silences, too large ones, some not JSON.

    `clocked`: clock records are among them.
    """
    first = len(before or ())
    now_s = max((record.ts // 1_000 for record in before or () if record), default=1_000)
    log: Log = []
    open_now: set[str] = set()

    def add(key: str, kind: str, at_s: int, body: int) -> None:
        value = orjson.dumps({"session_key": key, "event_type": kind, "body": body})
        log.append(Record(partition, first + len(log), at_s * 1_000, None, value))

    for _ in range(chance.randint(10, 60)):
        now_s += chance.choice(
            [0, 1, 1, 2, 5, 5, chance.choice([30, 90, 200]) if chance.random() < 0.1 else 1]
        )
        key, at_s = f"k{chance.randrange(6)}", now_s + chance.randint(-5, 5)
        if key in open_now:
            (kind,) = chance.choices(["start_event", "entry_event", "end_event"], [1, 6, 4])
        else:
            kind = "start_event" if chance.random() < 0.85 else chance.choice(["entry_event", "end_event"])
        if kind == "start_event":
            open_now.add(key)
        elif kind == "end_event":
            open_now.discard(key)
        small = kind != "start_event" or chance.random() < 0.5
        body = chance.randrange(3 if small else 10**6)
        add(key, kind, at_s, body)
        if chance.random() < 0.1:
            add(key, kind, at_s, body)
        if kind == "start_event" and chance.random() < 0.2:
            add(key, "entry_event", at_s, 0)
            add(key, "start_event", at_s + 1, body)
        if chance.random() < 0.04:
            for body in range(6):
                add(key, "entry_event", at_s, body)
        if chance.random() < 0.03:
            log.append(Record(partition, first + len(log), at_s * 1_000, None, b"\xff no JSON"))
        if chance.random() < 0.06:
            for _ in range(chance.randint(1, 5)):
                log.append(_clock_record(partition, first + len(log), now_s) if clocked else None)
    return log


def _clock_record(partition: int, offset: int, now_s: int) -> Record | None:
    """One of now or later, perhaps ten years, or none. Where the settings have none, it is malformed."""
    chance = random.Random(f"{partition}, {offset}, {now_s}")
    at_s = now_s + chance.choice([0, 90, 250, 315_360_000])
    record = Record(partition, offset, at_s * 1_000, None, None, by_broker=chance.random() < 0.3, clock=b"1")
    return record if chance.random() < 0.5 else None
