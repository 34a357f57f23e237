"""Finds the sessions and dead letters that may have the event at a position in the input. records.py reads a record of an output."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from contract.positions import RecordPosition
from db.statements import queries
from publisher.outbox.permitted import permitted

_POSITIONS = queries("publisher.trace", "positions")

MOST_CANDIDATES = 50
# The most batches that are searched, from the one that read the offset on, and the most sessions: a session closes soon after its events.
_BATCHES = 64
_SESSIONS = 20_000


class Candidate(NamedTuple):
    """A session that may have the event at a position. `exact`: the session begins or ends there, so it has the event."""

    session_key: str
    batch_id: int
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    exact: bool


class LetterMatch(NamedTuple):
    """A dead letter that has the event. `session_key`: None if the key could not be read."""

    dead_letter_id: int
    session_key: str | None
    reason: str
    state: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class PositionMatches:
    """The sessions and letters at a position in the input. `letters_hidden`: the login may not read dead letters."""

    topic_ids: list[str]
    candidates: list[Candidate] = field(default_factory=list)
    letters: list[LetterMatch] = field(default_factory=list)
    letters_hidden: bool = False

    def keys(self, *, exact: bool) -> list[str]:
        """Return the distinct session keys; `exact`: only of sessions and letters that certainly have the event."""
        found = [each.session_key for each in self.candidates if each.exact or not exact]
        found += [each.session_key for each in self.letters if each.session_key is not None]
        return list(dict.fromkeys(found))


def find_matches(
    connection: psycopg.Connection[Any], position: RecordPosition, *, only_ends: bool = False
) -> PositionMatches:
    """Return the sessions and letters that may have the event at a position in the input. Raises psycopg.Error.

    `only_ends`: only sessions that end there. The outbox knows only where each session begins and ends. If sessions overlap, only Kafka can
    tell which of them an event belongs to.
    """
    ids = [topic_id for (topic_id,) in connection.execute(_POSITIONS["topic_ids"], {"topic": position.topic})]
    found = PositionMatches(ids)
    if not position.is_possible:
        return found
    for topic_id in ids:
        where = {
            "topic_id": topic_id,
            "partition": position.partition,
            "offset": position.offset,
            "rows": MOST_CANDIDATES,
        }
        for (batch_id,) in connection.execute(_POSITIONS["batches"], where).fetchall():
            limits = {"batch_id": batch_id, "batches": _BATCHES, "most_sessions": _SESSIONS}
            for key, batch, of, partition, start, end in connection.execute(
                _POSITIONS["sessions"], where | limits, prepare=False
            ):
                if end == position.offset or not only_ends:
                    exact = position.offset in (start, end)
                    found.candidates.append(Candidate(key, batch, of, partition, start, end, exact))
    return _with_letters(connection, position, found)


def _with_letters(
    connection: psycopg.Connection[Any], position: RecordPosition, found: PositionMatches
) -> PositionMatches:
    def ask() -> list[LetterMatch]:
        return [
            LetterMatch(*row)
            for topic_id in found.topic_ids
            for row in connection.execute(
                _POSITIONS["letters"],
                {
                    "topic_id": topic_id,
                    "partition": position.partition,
                    "offset": position.offset,
                    "rows": MOST_CANDIDATES,
                },
            )
        ]

    letters = permitted(connection, ask, None)
    return PositionMatches(found.topic_ids, found.candidates, letters or [], letters_hidden=letters is None)
