"""Lane epochs: periods with one lane count. Pure. Which epochs are delivered now: `current` in sql/epochs.sql, read by
assignment/membership.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """A period with one lane count. It begins with batch `from_batch`."""

    epoch: int
    from_batch: int
    lanes: int


LaneId = tuple[int, int]
"""(epoch, lane)"""
