"""What a pipeline did over time, and what that means for its speed. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Cpu(NamedTuple):
    """Seconds of CPU that a job has used."""

    driver: float
    jvm: float
    workers: float

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(*(now - then for now, then in zip(self, earlier, strict=True)))

    def plus(self, other: "Cpu") -> "Cpu":
        """The sum."""
        return Cpu(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def total(self) -> float:
        """Of all three."""
        return sum(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """How far a pipeline was at one moment."""

    at_s: float
    delivered: int
    """Sessions that the publisher has sent."""
    events: int
    """Input events in the ledger."""
    cpu: Cpu


def cpu_us(begin: Sample, end: Sample) -> dict[str, float]:
    """Microseconds of CPU for each input event, by process."""
    events = end.events - begin.events
    used = end.cpu - begin.cpu
    named = used._asdict() | {"total": used.total}
    return {f"cpu_us_{name}": 1e6 * seconds / events for name, seconds in named.items()}


def batch_s(committed: Sequence[datetime]) -> float:
    """Return the median of the times from one commit to the next: of the batches, where one follows the other. Raises ValueError."""
    if len(committed) < 3:
        raise ValueError(f"only {len(committed)} batches were committed")
    return median((after - before).total_seconds() for before, after in pairwise(committed))
