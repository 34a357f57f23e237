"""Whether a topic holds the outputs of these sessions, each once: what a read_committed consumer sees."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.transforms import OUTPUT_BYTES, OUTPUTS

Output = tuple[bytes | None, bytes | None]
"""(key, value)"""

_END = b'{"event_type":"end_event"'
_PADDING = b"x" * (OUTPUT_BYTES - 17)
_TIMEOUT_S = 60.0
_SILENCE_S = 60.0
_POLL_S = 0.1
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Verdict:
    """How the outputs that were found differ from those that were expected."""

    expected: int
    found: int
    missing: int
    """Expected, and never found."""
    doubled: int
    """Records beyond the first of an expected output."""
    strange: int
    """Records with a key and a value that nobody expected, and those with headers."""
    example: Output | None = None
    """One that is doubled or strange, or else missing."""

    @property
    def is_exact(self) -> bool:
        """Each output once, and nothing else."""
        return not (self.missing or self.doubled or self.strange)

    def __str__(self) -> str:
        text = f"{self.expected} outputs expected, {self.found} records found"
        if self.is_exact:
            return f"{text}: each once, nothing else"
        key, value = self.example or (None, None)
        return (
            f"{text}: {self.missing} missing, {self.doubled} doubled, {self.strange} strange, "
            f"for example key {key!r}, value {(value or b'')[:24]!r}..."
        )


def output(ended_ms: int, number: int) -> bytes:
    """Return the value of an output, as `benchmarks.transforms.twenty` makes it. Milliseconds since 1970."""
    return b"%013d %02d " % (ended_ms, number) + _PADDING


class Judgement:
    """Takes the outputs one by one, in any order."""

    def __init__(self, ends: Mapping[bytes, int]) -> None:
        """`ends`: {session key: time of its end event, milliseconds since 1970}; one session a key."""
        self._ends = ends
        self._seen = dict.fromkeys(ends, 0)
        self._found = self._first = self._doubled = self._strange = 0
        self._example: Output | None = None

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record."""
        self._found += 1
        number = self._number(key, value)
        if key is None or number is None:
            self._strange += 1
        elif self._seen[key] >> number & 1:
            self._doubled += 1
        else:
            self._first += 1
            self._seen[key] |= 1 << number
            return
        self._example = self._example or (key, value)

    def _number(self, key: bytes | None, value: bytes | None) -> int | None:
        """Of an expected output; None for any other record."""
        if key not in self._ends or value is None or not value[14:16].isdigit():
            return None
        number = int(value[14:16])
        return number if number < OUTPUTS and value == output(self._ends[key], number) else None

    @property
    def is_complete(self) -> bool:
        """Whether each expected output has come."""
        return self._first == OUTPUTS * len(self._ends)

    @property
    def sessions(self) -> int:
        """About how many sessions have come."""
        return self._first // OUTPUTS

    def verdict(self) -> Verdict:
        """Return how it stands now."""
        wanted = OUTPUTS * len(self._ends)
        example = self._example
        if example is None and self._first < wanted:
            example = next(self._left())
        return Verdict(wanted, self._found, wanted - self._first, self._doubled, self._strange, example)

    def _left(self) -> Iterator[Output]:
        for key, seen in self._seen.items():
            yield from ((key, output(self._ends[key], n)) for n in range(OUTPUTS) if not seen >> n & 1)


def judge(ends: Mapping[bytes, int], found: Iterable[Output]) -> Verdict:
    """Compare the outputs of the sessions, each once, with what was found."""
    judgement = Judgement(ends)
    for key, value in found:
        judgement.add(key, value)
    return judgement.verdict()


def verify(bootstrap_servers: str, output_topic: str, ends: Mapping[bytes, int]) -> Verdict:
    """Read what is committed of the topic, to its end now. Raises RuntimeError where Kafka stops answering."""
    with TopicReader(bootstrap_servers, output_topic) as reader:
        return judge(ends, reader.to_the_end())


def session_ends(bootstrap_servers: str, input_topic: str) -> dict[bytes, int]:
    """Return {session key: LogAppendTime of its end event, milliseconds since 1970}. Raises RuntimeError for a topic with other times."""
    ends: dict[bytes, int] = {}
    with TopicReader(bootstrap_servers, input_topic) as reader:
        for message in reader.messages_to_the_end():
            key, value = message.key(), message.value()
            if key is not None and value is not None and value.startswith(_END):
                kind, stamp_ms = message.timestamp()
                if kind != TIMESTAMP_LOG_APPEND_TIME:
                    raise RuntimeError(f"topic {input_topic} does not have LogAppendTime")
                ends[key] = stamp_ms
    return ends


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
                self._reached[message.partition()] = message.offset()
            else:
                raise KafkaException(error)
        return records

    def messages_to_the_end(self) -> Iterator[Message]:
        """Yield all that is committed now and was not read yet. Raises KafkaException, RuntimeError after a minute's silence."""
        wanted = self._stable_offsets()
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

    def to_the_end(self) -> Iterator[Output]:
        """Keys and values of the same. A record with headers is none of ours: it has no key here."""
        for message in self.messages_to_the_end():
            yield (None if message.headers() else message.key()), message.value()

    def _stable_offsets(self) -> dict[int, int]:
        """Where a read_committed consumer has to stop: the end, or the oldest open transaction."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(
            {TopicPartition(self._topic, number): latest for number in self._partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        return {place.partition: answer.result().offset for place, answer in asked.items()}
