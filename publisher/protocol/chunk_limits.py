"""How much one Kafka transaction carries, and which batches of the ledger it may cover. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID


class LedgerRow(NamedTuple):
    """One committed batch. `committed_s`: when, by Postgres' clock, in seconds since 1970."""

    batch_id: int
    commit_id: UUID
    committed_s: float = 0.0


def first_gap(after_batch: int, ledger: Sequence[LedgerRow]) -> int | None:
    """Return the first batch id after `after_batch` that the ledger leaves out, None where it is dense.

    The writer numbers batches without gaps and commits them in that order, so a gap is damage, not delay.
    """
    for expected, row in enumerate(ledger, after_batch + 1):
        if row.batch_id != expected:
            return expected
    return None


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How much one Kafka transaction carries: at most `rows` rows, and `bytes` bytes of values and one row more.

    `events`: at most so many, None: any number; a row with more goes alone.
    """

    rows: int
    bytes: int
    events: int | None = None

    def fitting(self, events: Sequence[int]) -> int:
        """Return how many of the rows with so many events each are within `events`: the first always is."""
        if self.events is None:
            return len(events)
        total = 0
        for index, of_row in enumerate(events):
            total += of_row
            if total > self.events and index > 0:
                return index
        return len(events)


# A compressed value takes more than is stored. JSON shrinks to a quarter or a half; what shrinks more is learned from what was fetched.
_EXPANSION = 4
# Rows that one statement looks at, at the most, and as long as nothing is known of their size.
_MOST_ROWS = 1_024
_FIRST_ROWS = 32


class FetchSize:
    """How many rows to fetch for a number of bytes, learned from earlier fetches."""

    def __init__(self) -> None:
        self._bytes_per_row = 0.0
        self.expansion = _EXPANSION
        """How many times its stored size a compressed row is taken to be."""

    def rows(self, rows: int, bytes_: int) -> int:
        """Return how many rows to look at for at most `rows` rows and `bytes_` bytes."""
        known = self._bytes_per_row
        fitting = int(bytes_ / known) + 1 if known > 0 else _FIRST_ROWS
        return max(1, min(fitting, rows, _MOST_ROWS))

    def fetched(self, rows: int, bytes_: int, sizes: int) -> None:
        """Learn from a fetch: it returned `rows` rows of `bytes_` bytes, which had been estimated at `sizes` bytes."""
        if rows > 0 and bytes_ > 0:
            self._bytes_per_row = bytes_ / rows
            # Falls slowly: rows that shrink much may come in turn with others.
            needed = -(-bytes_ * self.expansion // max(1, sizes))
            self.expansion = max(_EXPANSION, needed, self.expansion - 1)
