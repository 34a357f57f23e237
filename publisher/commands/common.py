"""Connects a command to its outbox."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from db.connection import connect
from db.migrate import require_current
from service.settings import Settings


@contextmanager
def database(settings: Settings, command: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect to the outbox for a command. Raises SchemaError, UnavailableError."""
    with connect(settings.postgres, f"publisher {command}", autocommit=True) as connection:
        require_current(connection)
        yield connection
