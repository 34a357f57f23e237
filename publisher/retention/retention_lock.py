"""Keeps retention from running while a command begins to need old outputs."""

from typing import Any

import psycopg

from db.lock_holders import refuse_strangers
from db.statements import queries
from service.errors import UnavailableError

_ROWS = queries("publisher", "rows")

RETENTION_LOCK = "outbox.retention"


def hold_off_retention(connection: psycopg.Connection[Any]) -> None:
    """Keep retention from planning and dropping until this connection ends. Later queries see every drop that was made before.

    Raises UnavailableError if a retention, or an unknown session, holds the lock for longer than the lock timeout.
    """
    try:
        connection.execute(_ROWS["hold_off_retention"])
    except psycopg.errors.LockNotAvailable as error:
        refuse_strangers(connection, RETENTION_LOCK)
        raise UnavailableError(
            "retention has held the outputs for longer than [postgres] lock_timeout_ms. Nothing was done; run the command again once "
            "retention has finished"
        ) from error
