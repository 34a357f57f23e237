"""Dead letters without a session key: nobody can say whose they are, so a person names each by the place of its record in the input."""

from dataclasses import asdict, dataclass
from typing import Any

from publisher.lookup.positions import Position
from service.errors import SettingsError

_WRITTEN = "TOPIC/PARTITION/OFFSET"


@dataclass(slots=True)
class ErasedLetter:
    """What became of the dead letters at a place. `left`: what is still there, and what to do."""

    place: str
    letters: int = 0
    left: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self)


def parse_place(text: str) -> Position:
    """Read TOPIC/PARTITION/OFFSET. Raises SettingsError."""
    topic, *numbers = text.rsplit("/", 2)
    if not topic or len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise SettingsError(
            f"--letter {text!r} is not {_WRITTEN}, as `spark-job dead-letters show ID` has it: topic, partition and first offset"
        )
    partition, offset = map(int, numbers)
    if partition >= 1 << 31 or offset >= 1 << 63:
        raise SettingsError(f"--letter {text!r}: Kafka has no such partition or offset")
    return Position(topic, partition, offset)
