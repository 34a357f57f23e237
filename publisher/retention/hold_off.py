"""Keeps retention away while something begins to need old outputs."""

from typing import Any

import psycopg

from db.statements import queries
from service.errors import UnavailableError

_ROWS = queries("publisher", "rows")


def hold_off_retention(connection: psycopg.Connection[Any]) -> None:
    """Let no retention decide or drop until this connection ends; what it has dropped is gone for every later look.

    Raises UnavailableError where one runs for longer than the lock timeout.
    """
    try:
        connection.execute(_ROWS["hold_off_retention"])
    except psycopg.errors.LockNotAvailable as error:
        raise UnavailableError(
            "retention is at work and holds the outputs for longer than [postgres] lock_timeout_ms. Nothing was done; give the command "
            "again when it is through"
        ) from error
