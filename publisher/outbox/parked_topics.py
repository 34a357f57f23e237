"""Records the missing output topics whose rows a person has decided to park, so that lanes continue without these topics.

The decision holds until it is taken back. It affects only rows that lanes reach while the topic is missing. lane/parking.py applies it.
"""

from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from db import operations, windows
from db.statements import queries

_TOPICS = queries("publisher", "parked_topics")


class Waiting(NamedTuple):
    """How many rows wait for a topic, how many session keys they have, and how many outputs, including those for other topics."""

    rows: int
    session_keys: int
    outputs: int


def standing(connection: psycopg.Connection[Any]) -> dict[str, datetime]:
    """Return the topics with such a decision, and since when: {topic: time}."""
    return dict(connection.execute(_TOPICS["standing"]).fetchall())


def waiting(connection: psycopg.Connection[Any], topic: str) -> Waiting:
    """Count the undelivered rows with outputs for a topic. A session key is counted once for each window of batches that has it."""
    found = Waiting(0, 0, 0)
    span = connection.execute(_TOPICS["span"]).fetchone()
    for window in () if span is None or span[0] is None else windows.cut(*span):
        row = connection.execute(
            _TOPICS["waiting"], {"topic": topic} | window.bounds, prepare=False
        ).fetchone()
        assert row is not None
        found = Waiting(*(old + new for old, new in zip(found, row, strict=True)))
    return found


def decide(connection: psycopg.Connection[Any], topic: str) -> None:
    """Park the rows for a topic while it is missing."""
    with connection.transaction():
        connection.execute(_TOPICS["decide"], {"topic": topic})
        operations.record(connection, "publisher parked park", {"topic": topic})


def take_back(connection: psycopg.Connection[Any], topic: str) -> bool:
    """Take the decision back, so that rows for a missing topic stop their lanes again; return whether there was a decision."""
    with connection.transaction():
        stood = connection.execute(_TOPICS["take_back"], {"topic": topic}).rowcount == 1
        if stood:
            operations.record(connection, "publisher parked park", {"topic": topic, "end": True})
    return stood
