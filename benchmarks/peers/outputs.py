"""Whether a topic holds the outputs of these sessions, each once: what a read_committed consumer sees."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from benchmarks.support.topic_reader import TopicReader
from benchmarks.transforms import OUTPUT_BYTES, OUTPUTS

Output = tuple[bytes | None, bytes | None]
"""(key, value)"""

_END = b'{"event_type":"end_event"'
_PADDING = b"x" * (OUTPUT_BYTES - 17)


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
    """Records with a key and a value that nobody expected. Headers do not count: this project's publisher adds one with an output's id."""
    example: Output | None = None
    """One that is doubled or strange, or else missing."""

    @property
    def is_exact(self) -> bool:
        """Each output once, and nothing else."""
        return not (self.missing or self.doubled or self.strange)

    @property
    def has_all(self) -> bool:
        """Each output at least once, and nothing else."""
        return not (self.missing or self.strange)

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
        if key is None or key not in self._ends or value is None or not value[14:16].isdigit():
            return None
        number = int(value[14:16])
        return number if number < OUTPUTS and value == output(self._ends[key], number) else None

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
