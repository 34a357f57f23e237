"""One statement on a connection of its own."""

from typing import Any

import psycopg


def query(dsn: str, sql: str, *parameters: object) -> list[Any]:
    """Run one statement and return its rows, if any."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []
