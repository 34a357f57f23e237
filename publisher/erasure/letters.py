"""Parses the positions of dead letters without a session key. A person names each letter by the position of its record in the input."""

from dataclasses import asdict, dataclass
from typing import Any

from contract.positions import RecordPosition, parse_position
from service.errors import SettingsError

_WRITTEN = "TOPIC/PARTITION/OFFSET"


@dataclass(slots=True)
class ErasedLetter:
    """The result for the dead letters at a position. `left`: what could not be erased, and what to do."""

    place: str
    letters: int = 0
    left: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        return asdict(self)


def letter_position(text: str) -> RecordPosition:
    """Read TOPIC/PARTITION/OFFSET. Raises SettingsError."""
    try:
        position = parse_position(text)
    except ValueError:
        position = None
    if not isinstance(position, RecordPosition) or str(position) != text:  # what is erased is named exactly
        raise SettingsError(
            f"--letter {text!r} is not {_WRITTEN}, as `spark-job dead-letters show ID` has it: topic, partition and first offset"
        )
    if not position.is_possible:
        raise SettingsError(f"--letter {text!r}: Kafka has no such partition")
    return position
