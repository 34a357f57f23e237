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
        return 2 if self.record.by_broker else 1, self.record.ts

    def value(self) -> bytes | None:
        return self.record.value

    def key(self) -> bytes | None:
        return as_bytes(self.record.key)

    def headers(self) -> list[tuple[str, bytes]]:
        given = {
            "type": as_bytes(self.record.type),
            "event_id": as_bytes(self.record.event_id),
            "schema_id": self.record.schema_id,
            "traceparent": self.record.traceparent,
            "outbox-clock": self.record.clock,
        }
        return [(name, value) for name, value in given.items() if value is not None]

    def __len__(self) -> int:
        return len(self.record.value or b"")


def as_bytes(text: str | bytes | None) -> bytes | None:
    """As Kafka has it."""
    return text.encode() if isinstance(text, str) else text


def in_blocks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """As `committed_records` gives them: some at a time, more or fewer."""
    left = iter(messages)
    for size in cycle((3, 1, 40)):
        block = list(islice(left, size))
        if not block:
            return
        yield block
