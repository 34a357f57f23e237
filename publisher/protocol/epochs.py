"""Lane epochs: periods with one lane count. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """A period with one lane count. It begins with batch `from_batch`."""

    epoch: int
    from_batch: int
    lanes: int


LaneId = tuple[int, int]
"""(epoch, lane)"""
