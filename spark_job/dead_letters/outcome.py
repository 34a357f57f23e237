"""The outcome of a retry: letters retried with new outputs, refused, or failed once more."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from spark_job.dead_letters import store
from spark_job.dead_letters.store import StoredLetter
from spark_job.input.offsets import Offsets
from spark_job.sink.batch import SessionRow


@dataclass(frozen=True)
class Refused:
    """A letter that is left as it is, and why."""

    dead_letter_id: int
    because: str


@dataclass(frozen=True)
class Failed:
    """A letter whose transform failed once more; it stays open as it is."""

    dead_letter_id: int
    error: str
    traceback: str


@dataclass(frozen=True)
class Ready:
    """A session with its new outputs, and the letters that keep its events: one, or one `malformed` for each event."""

    letters: tuple[StoredLetter, ...]
    session: SessionRow

    @property
    def letter(self) -> StoredLetter:
        """The first letter."""
        return self.letters[0]


@dataclass
class RetryOutcome:
    """The outcome for some letters. `batches`: the ledger's new rows, none in a dry run."""

    retried: list[Ready] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    superseded: int = 0  # further letters that the new outputs resolved

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
        self.superseded += other.superseded


def refusal(
    letter: StoredLetter, standing: Mapping[str, object], end: Offsets, topics: Mapping[str, str]
) -> str | None:
    """Return why a letter may not be retried now; None if it may.

    `standing`: the columns of `standings` in sql/letters.sql; `end` and `topics`, {topic id: topic}: of the current position.
    """
    if standing["state"] == "resolved":
        return f"batch {standing['resolved_batch']} has resolved it"
    if standing["state"] != store.OPEN:
        return f"it is {standing['state']}"
    # Nothing more is read of a topic that was deleted and created again.
    is_replaced = letter.where.topic_id not in topics and letter.topic in topics.values()
    if letter.closing_offset >= end.at(letter.where) and not is_replaced:
        return (
            f"it closes at offset {letter.closing_offset} of {letter.topic}/{letter.partition}, which the job is about to read again "
            f"(it has read up to {end.at(letter.where)}) and will judge again; try again after that"
        )
    if standing["newer_letter"] is not None:
        return f"letter {standing['newer_letter']} is a newer judgement of the same events: retry that one, or discard it first"
    return None
