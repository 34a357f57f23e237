"""The outcome of a retry: letters retried with new outputs, refused, or failed again."""

from dataclasses import dataclass, field
from operator import attrgetter

from spark_job.dead_letters.store import StoredLetter
from spark_job.sink.batch_result import SessionRow


@dataclass(frozen=True)
class Refused:
    """A letter that was not retried, and why."""

    dead_letter_id: int
    because: str


@dataclass(frozen=True)
class Failed:
    """A letter whose transform failed again, or whose events cannot be read. The letter stays open."""

    dead_letter_id: int
    error: str
    traceback: str


@dataclass(frozen=True)
class Ready:
    """A session with its new outputs, and the letters that keep its events: one letter, or one letter `malformed` for each event."""

    letters: tuple[StoredLetter, ...]
    session: SessionRow

    @property
    def letter(self) -> StoredLetter:
        """The first letter."""
        return self.letters[0]


@dataclass
class RetryOutcome:
    """The outcome for some letters. `batches`: ids of the ledger rows that were written; empty in a dry run."""

    retried: list[Ready] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    also_resolved: int = 0  # further letters that the new outputs resolved

    @property
    def output_events(self) -> int:
        """Number of output events of the retried letters."""
        return sum(ready.session.outputs for ready in self.retried)

    def add(self, other: "RetryOutcome") -> None:
        """Add the outcome for further letters."""
        self.retried += other.retried
        self.refused = sorted(self.refused + other.refused, key=attrgetter("dead_letter_id"))
        self.failed += other.failed
        self.batches += other.batches
        self.also_resolved += other.also_resolved
