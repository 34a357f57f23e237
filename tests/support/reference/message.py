"""Records as the worker's own Kafka client gives them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice

from tests.support.reference.model import Record


@dataclass(frozen=True)
class Message:
    """A record as confluent-kafka gives it."""

    record: Record

    def offset(self) -> int:
        return self.record.offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self.record.ts

    def value(self) -> bytes | None:
        return self.record.value

    def key(self) -> bytes | None:
        return self.record.key.encode() if isinstance(self.record.key, str) else self.record.key

    def headers(self) -> list[tuple[str, bytes]]:
        return [] if self.record.type is None else [("type", self.record.type.encode())]

    def __len__(self) -> int:
        return len(self.record.value or b"")


def in_blocks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """As `committed_records` gives them: some at a time, more or fewer."""
    left = iter(messages)
    for size in cycle((3, 1, 40)):
        block = list(islice(left, size))
        if not block:
            return
        yield block
