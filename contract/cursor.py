"""A lane's position in the outbox. Its progress record carries it to Kafka (progress.py). Pure."""

from dataclasses import dataclass
from functools import total_ordering


@total_ordering
@dataclass(frozen=True, slots=True)
class Cursor:
    """All rows up to and including this position have been delivered or parked.

    `session_key` None: the whole batch `batch_id`; otherwise the batch's rows up to this key, in the order of the keys' UTF-8 bytes.
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
        """Return the pair (batch_id, session_key): the rows after this cursor are greater than it.

        No session key is empty, so (n, "") stands for "before the first row of n".
        """
        if self.session_key is None:
            return self.batch_id + 1, ""
        return self.batch_id, self.session_key

    def __str__(self) -> str:
        """Leave the session key out: more people read logs and `/readyz` than the outbox."""
        return f"batch {self.batch_id}" + ("" if self.session_key is None else ", in the middle")
