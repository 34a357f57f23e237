"""Reads the outbox's record of erased sessions, by session key or by the input position at which a session ended."""

from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from db.statements import queries

_ERASED = queries("publisher", "erased")


class ErasedSession(NamedTuple):
    """A session whose row was erased."""

    erased_at: datetime
    batch_id: int
    revision: int
    topic_id: str
    partition: int
    end_offset: int
    outputs: int

    def __str__(self) -> str:
        return (
            f"erased at {self.erased_at:%F %T}: the session that ended at {self.topic_id}/{self.partition}/{self.end_offset}, batch "
            f"{self.batch_id}, revision {self.revision}, {self.outputs} outputs"
        )


def erased_of_key(connection: psycopg.Connection[Any], session_key: str) -> list[ErasedSession]:
    """Return the erased sessions of a session key. Raises psycopg.Error."""
    rows = connection.execute(_ERASED["of_key"], {"session_key": session_key})
    return [ErasedSession(*row) for row in rows]


def erased_at_end(
    connection: psycopg.Connection[Any], topic_id: str, partition: int, end_offset: int
) -> list[ErasedSession]:
    """Return the erased sessions that ended at a position of the input, one for each revision. Raises psycopg.Error."""
    end = {"topic_id": topic_id, "partition": partition, "end_offset": end_offset}
    return [ErasedSession(*row) for row in connection.execute(_ERASED["at_end"], end)]


def newest_erasure(connection: psycopg.Connection[Any]) -> int:
    """Return the number of the newest row of `outbox.erased`, 0 if there is none."""
    row = connection.execute(_ERASED["newest"]).fetchone()
    return 0 if row is None else row[0]
