"""Records which missing output topics a person has decided to park rows for, so that lanes continue without them.

The decision stands until it is taken back, and parks only rows that come while the topic is missing. lane/parking.py applies it.
"""

from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from db import operations, windows
from db.statements import queries

_TOPICS = queries("publisher", "parked_topics")


class Waiting(NamedTuple):
    """The rows that wait for a topic, their session keys, and all of their outputs, those for other topics included."""

    rows: int
    session_keys: int
    outputs: int


def standing(connection: psycopg.Connection[Any]) -> dict[str, datetime]:
    """Return the topics, and since when."""
    return dict(connection.execute(_TOPICS["standing"]).fetchall())


def waiting(connection: psycopg.Connection[Any], topic: str) -> Waiting:
    """Count the undelivered rows that go to a topic. A session key counts again in each window of batches that has it."""
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
    """Have the rows for a topic parked while it is missing."""
    with connection.transaction():
        connection.execute(_TOPICS["decide"], {"topic": topic})
        operations.record(connection, "publisher parked park", {"topic": topic})


def take_back(connection: psycopg.Connection[Any], topic: str) -> bool:
    """Let the rows for a missing topic stop their lanes again; return whether the decision stood."""
    with connection.transaction():
        stood = connection.execute(_TOPICS["take_back"], {"topic": topic}).rowcount == 1
        if stood:
            operations.record(connection, "publisher parked park", {"topic": topic, "end": True})
    return stood
