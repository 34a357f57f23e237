"""Where a lane is in the outbox, and how far one Kafka transaction may go. Pure: no Postgres, no Kafka."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import NamedTuple
from uuid import UUID


@total_ordering
@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything up to and including this point is through.

    `session_key` None: all of `batch_id`; else its rows up to this key, in the order of the keys' UTF-8 bytes.
    """

    batch_id: int
    session_key: str | None = None

    def __lt__(self, other: "Cursor") -> bool:
        if self.batch_id != other.batch_id or self.session_key == other.session_key:
            return self.batch_id < other.batch_id
        # Code points sort as their UTF-8 bytes do, which is what COLLATE "C" compares.
        return self.session_key is not None and (
            other.session_key is None or self.session_key < other.session_key
        )

    def exclusive_bound(self) -> tuple[int, str]:
        """Return (batch_id, session_key) so that the rows after this cursor are those greater than the pair.

        No session key is empty, so (n, "") stands for "before the first row of n".
        """
        if self.session_key is None:
            return self.batch_id + 1, ""
        return self.batch_id, self.session_key

    def __str__(self) -> str:
        return f"batch {self.batch_id}" + ("" if self.session_key is None else f" at {self.session_key!r}")


@dataclass(frozen=True, slots=True)
class Epoch:
    """A period with one lane count: the batches from `from_batch` on."""

    epoch: int
    from_batch: int
    lanes: int


class LedgerRow(NamedTuple):
    """One committed batch."""

    batch_id: int
    commit_id: UUID


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
    """How much one Kafka transaction carries: at most `rows` rows, and about `bytes` bytes of values.

    `events`: at most so many, None: any number; a row with more goes alone.
    """

    rows: int
    bytes: int
    step_rows: int = 1_024
    """Rows fetched at once: what the byte limit may be overshot by in memory."""
    events: int | None = None

    def next_step(self, rows: int, size: int, bytes_per_row: float) -> int:
        """Return how many rows to fetch next, 0 when the chunk is full.

        `rows` and `size` (bytes) are what it has; `bytes_per_row` is what rows lately took, 0 where unknown.
        """
        if rows >= self.rows or size >= self.bytes:
            return 0
        fitting = int((self.bytes - size) / bytes_per_row) + 1 if bytes_per_row > 0 else 32
        return max(1, min(fitting, self.rows - rows, self.step_rows))

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
