"""Dead letters without a session key: nobody can say whose they are, so a person names each by the place of its record in the input."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from service.errors import SettingsError

_WRITTEN = "TOPIC/PARTITION/OFFSET"


class LetterPlace(NamedTuple):
    """Where the record of a dead letter is in the input."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(slots=True)
class ErasedLetter:
    """What became of the dead letters at a place. `left`: what is still there, and what to do."""

    place: str
    letters: int = 0
    left: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self)


def parse_place(text: str) -> LetterPlace:
    """Read TOPIC/PARTITION/OFFSET. Raises SettingsError."""
    topic, *numbers = text.rsplit("/", 2)
    if not topic or len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise SettingsError(
            f"--letter {text!r} is not {_WRITTEN}, as `spark-job dead-letters show ID` has it: topic, partition and first offset"
        )
    partition, offset = map(int, numbers)
    if partition >= 1 << 31 or offset >= 1 << 63:
        raise SettingsError(f"--letter {text!r}: Kafka has no such partition or offset")
    return LetterPlace(topic, partition, offset)
