"""The position of a record in Kafka, and the header `outbox-id`, which names the position of a session's last event."""

from typing import NamedTuple

_MOST_PARTITION, _MOST_OFFSET = 2**31 - 1, 2**63 - 1


class RecordPosition(NamedTuple):
    """A record's position. `topic` may be a topic id, for a position in the input."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def is_possible(self) -> bool:
        """Whether Kafka can have a partition of this number."""
        return self.partition <= _MOST_PARTITION


class OutboxId(NamedTuple):
    """The header `outbox-id`: the position of the session's last event, and which of its outputs."""

    topic_id: str
    partition: int
    end_offset: int
    output: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}/{self.end_offset}/{self.output}"

    @property
    def end(self) -> RecordPosition:
        """The position of the session's last event."""
        return RecordPosition(self.topic_id, self.partition, self.end_offset)


def parse_position(text: str) -> OutboxId | RecordPosition:
    """Read `TOPIC-ID/PARTITION/OFFSET/INDEX` or `TOPIC/PARTITION/OFFSET`. Raises ValueError."""
    topic, *numbers = text.strip().split("/")
    if not topic or not all(_is_number(number) for number in numbers) or len(numbers) not in (2, 3):
        raise ValueError(
            f"{text!r} is neither an outbox-id (<input topic id>/<partition>/<offset>/<index>) nor a position "
            "(<topic>/<partition>/<offset>)"
        )
    if len(numbers) == 3:
        return OutboxId(topic, int(numbers[0]), int(numbers[1]), int(numbers[2]))
    return RecordPosition(topic, int(numbers[0]), int(numbers[1]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MOST_OFFSET
