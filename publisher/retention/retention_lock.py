"""Keeps retention from running while a command begins to need old outputs."""

from typing import Any

import psycopg

from db.lock_holders import refuse_strangers
from db.statements import queries
from service.errors import UnavailableError

_ROWS = queries("publisher", "rows")

RETENTION_LOCK = "outbox.retention"


def hold_off_retention(connection: psycopg.Connection[Any]) -> None:
    """Keep retention from deciding and dropping until this connection ends; later queries see what it had dropped before.

    Raises UnavailableError where a retention runs, or a stranger has the lock, for longer than the lock timeout.
    """
    try:
        connection.execute(_ROWS["hold_off_retention"])
    except psycopg.errors.LockNotAvailable as error:
        refuse_strangers(connection, RETENTION_LOCK)
        raise UnavailableError(
            "retention has held the outputs for longer than [postgres] lock_timeout_ms. Nothing was done; run the command again once "
            "retention has finished"
        ) from error
