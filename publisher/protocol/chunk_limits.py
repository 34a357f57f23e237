"""Decides how much one Kafka transaction carries, and which batches of the ledger it may cover. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID


class LedgerRow(NamedTuple):
    """One committed batch. `committed_s`: the time of its commit by Postgres' clock, in seconds since 1970."""

    batch_id: int
    commit_id: UUID
    committed_s: float = 0.0


def first_gap(after_batch: int, ledger: Sequence[LedgerRow]) -> int | None:
    """Return the first batch id after `after_batch` that is missing from the ledger, None if it has no gap.

    The writer numbers batches without gaps and commits them in that order, so a gap is damage, not delay.
    """
    for expected, row in enumerate(ledger, after_batch + 1):
        if row.batch_id != expected:
            return expected
    return None


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How much one Kafka transaction carries: at most `rows` rows, and at most `bytes` bytes of values.

    The row that crosses the limit of bytes is still included.

    `events`: the most events, None for no limit. A row with more events is sent alone.
    """

    rows: int
    bytes: int
    events: int | None = None

    def fitting(self, events: Sequence[int]) -> int:
        """Return how many of the first rows fit into the limit of `events`, at least one. `events`: the number of events of each row."""
        if self.events is None:
            return len(events)
        total = 0
        for index, of_row in enumerate(events):
            total += of_row
            if total > self.events and index > 0:
                return index
        return len(events)


# A compressed value is larger in memory than on disk. JSON shrinks to a quarter or a half; FetchSize learns larger factors.
_EXPANSION = 4
# The most rows that one statement reads, and the number of rows that it reads before any size is known.
_MOST_ROWS = 1_024
_FIRST_ROWS = 32


class FetchSize:
    """How many rows to fetch for a number of bytes, learned from earlier fetches."""

    def __init__(self) -> None:
        self._bytes_per_row = 0.0
        self.expansion = _EXPANSION
        """How many times larger a compressed row is assumed to be in memory than on disk."""

    def rows(self, rows: int, bytes_: int) -> int:
        """Return how many rows to read to get at most `rows` rows and about `bytes_` bytes."""
        known = self._bytes_per_row
        fitting = int(bytes_ / known) + 1 if known > 0 else _FIRST_ROWS
        return max(1, min(fitting, rows, _MOST_ROWS))

    def fetched(self, rows: int, bytes_: int, sizes: int) -> None:
        """Learn from a fetch of `rows` rows, which had `bytes_` bytes and had been estimated at `sizes` bytes."""
        if rows > 0 and bytes_ > 0:
            self._bytes_per_row = bytes_ / rows
            # Decreases slowly, because rows that compress well may alternate with others.
            needed = -(-bytes_ * self.expansion // max(1, sizes))
            self.expansion = max(_EXPANSION, needed, self.expansion - 1)
