"""Decides what a text names: a session key, an outbox-id or a position in Kafka. A known session key comes first."""

from typing import Any

import psycopg

from contract.positions import OutboxId, RecordPosition, parse_position
from db import windows
from db.statements import queries
from publisher.outbox.erased import erased_of_key
from publisher.outbox.permitted import permitted

_KEYS = queries("publisher.trace", "keys")

SessionKey = str


def identify(connection: psycopg.Connection[Any], text: str) -> SessionKey | OutboxId | RecordPosition | None:
    """Return the text if the outbox knows it as a session key, else the outbox-id or position that it names, None if it names neither.

    Raises psycopg.Error.
    """
    if not text or "\0" in text:
        return None
    if is_kept(connection, text) or erased_of_key(connection, text):
        return text
    try:
        return parse_position(text)
    except ValueError:
        return None


def is_kept(connection: psycopg.Connection[Any], key: SessionKey) -> bool:
    """Return whether a row or a dead letter has this session key. Raises psycopg.Error."""
    for window in reversed(windows.kept(connection)):
        row = connection.execute(_KEYS["has_row"], {"key": key} | window.bounds, prepare=False).fetchone()
        if row is not None and row[0]:
            return True
    letter = permitted(
        connection, lambda: connection.execute(_KEYS["has_letter"], {"key": key}).fetchone(), None
    )
    return letter is not None and bool(letter[0])
