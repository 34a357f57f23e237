"""What a history must leave in the outbox, by the reference model: of each generation, the outcomes of exactly what it had to judge."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.sessions.settings import AssemblySettings
from tests.support.histories.random_log import Log
from tests.support.reference.model import Expected, ExpectedSession, OpenSession, Record, expected_sessions


@dataclass(frozen=True)
class Place:
    """A partition at an offset."""

    log: Log
    end: int
    begin: int
    """What is open at `end` is what [begin, end) leaves open."""
    rules: tuple[tuple[int, AssemblySettings], ...]
    """(offset from which on they judge, rules)"""
    held: tuple[int, tuple[OpenSession, ...]] = (0, ())
    """The offset at which Kafka had lost something, and what the position remembered then: tombstones and later parts."""

    def lost(self, end: int, begin: int) -> "Place":
        """What is left where only [begin, end) is there, or comes: what was remembered stays, if it began below."""
        kept = self.held[1]
        if self.held[0] != self.end:
            kept = tuple(each for each in self.model(self.end).open if each.tombstone or each.part > 1)
        kept = tuple(each for each in kept if each.start_offset < end)
        return replace(self, end=end, begin=begin, held=(end, kept))

    def judged_by(self, rules: AssemblySettings) -> "Place":
        """The same place where other rules judge what comes."""
        return replace(self, rules=(*(r for r in self.rules if r[0] < self.end), (self.end, rules)))

    def model(self, end: int) -> Expected:
        """What the reference model says of [begin, end)."""
        return expected_sessions(
            [record for record in self.log[self.begin : end] if record is not None],
            self._rules_of,
            held=self.held,
        )

    @property
    def safe(self) -> int:
        """Where the oldest open session begins, `end` where none is."""
        starts = (each.start_offset for each in self.model(self.end).open if not each.tombstone)
        return min(starts, default=self.end)

    def _rules_of(self, record: Record) -> AssemblySettings:
        return next(
            rules for at, rules in reversed(self.rules) if at <= record.offset or at == self.rules[0][0]
        )


Places = dict[TopicPartition, Place]
Letter = tuple[int, int, int, str, int, tuple[bytes | None, ...]]
"""(first, last, closing, reason, events, kept values)"""


@dataclass
class ExpectedGeneration:
    """A generation, by where it began and how far it has read."""

    revision: int
    rules: AssemblySettings
    start: Places
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def position(self) -> Places:
        """Where it is."""
        return {where: replace(place, end=self.ends[where]) for where, place in self.start.items()}

    def outcomes(self) -> Iterator[tuple[TopicPartition, list[ExpectedSession], list[Letter]]]:
        """What closes in it."""
        for where, place in self.start.items():
            found = place.model(self.ends[where])
            sessions = [each for each in found.sessions if each.closing_offset >= place.end]
            letters = [
                (
                    each.first_offset,
                    each.last_offset,
                    each.closing_offset,
                    each.reason,
                    each.n_events,
                    tuple(value for _, _, value in each.events),
                )
                for each in found.letters
                if each.closing_offset >= place.end
            ]
            yield where, sessions, letters


class ExpectedOutbox:
    """All generations so far, and the positions that commands may go back to."""

    def __init__(self) -> None:
        self.generations: list[ExpectedGeneration] = []
        self.greatest: Places = {}
        self.saved: dict[str, Places] = {}

    @property
    def now(self) -> ExpectedGeneration:
        return self.generations[-1]

    @property
    def greatest_revision(self) -> int:
        return max(each.revision for each in self.generations)

    def open(self, start: Places, rules: AssemblySettings, revision: int) -> None:
        """A generation begins; its rules judge what comes."""
        judged = {where: place.judged_by(rules) for where, place in start.items()}
        ends = {where: place.end for where, place in start.items()}
        self.generations.append(ExpectedGeneration(revision, rules, judged, ends))
        self._note()

    def read_to(self, ends: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, Log]) -> None:
        """A batch is in the outbox. A partition that it names first is read from its beginning on."""
        for where, end in ends.items():
            self.now.start.setdefault(where, Place(logs[where], 0, 0, ((0, self.now.rules),)))
            self.now.ends[where] = end
        self._note()

    def _note(self) -> None:
        for where, place in self.now.position.items():
            if where not in self.greatest or place.end >= self.greatest[where].end:
                self.greatest[where] = place


def as_offsets(places: Places) -> Offsets:
    """Their ends."""
    return Offsets({where: place.end for where, place in places.items()})
