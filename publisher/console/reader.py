"""Lends the console's connections to Postgres. They are few, read-only, have a timeout for each query, and are not used for the
delivery."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.rows import DictRow, dict_row

from db.connection import connect
from db.migrate import require_current
from db.statements import queries
from service.errors import UnavailableError
from service.settings import Settings

_SESSION = queries("publisher.console", "session")

MOST_CONNECTIONS = 4
_WAIT_S = 5.0
_CONNECT_TIMEOUT_S = 3

Connection = psycopg.Connection[Any]
PageData = dict[str, Any]
"""{name: value} for a template."""


class Reader:
    """Lends read-only connections, at most `MOST_CONNECTIONS` at a time. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        """Opens no connection yet."""
        console = settings.console
        postgres = settings.postgres
        timeout_s = min(_CONNECT_TIMEOUT_S, postgres.connect_timeout_s)
        self._postgres = postgres.logged_in_by(console.dsn, console.dsn_file, "console").model_copy(
            update={"connect_timeout_s": timeout_s}
        )
        self._timeout_ms = console.statement_timeout_ms
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection in autocommit mode. Raises UnavailableError, SchemaError, psycopg.Error."""
        if not self._free.acquire(timeout=_WAIT_S):
            raise UnavailableError(f"the console's {MOST_CONNECTIONS} connections to Postgres are all in use")
        try:
            connection = self._take() or self._open()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            with self._lock:
                self._idle.append(connection)
        finally:
            self._free.release()

    def close(self) -> None:
        """Close idle connections."""
        while (connection := self._take()) is not None:
            connection.close()

    def _take(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _open(self) -> Connection:
        connection = connect(self._postgres, "publisher console", autocommit=True)
        try:
            require_current(connection)
            # No page waits for Kafka within a transaction (`read_page`), so a transaction that is idle for so long is a fault.
            limits = {"timeout": f"{self._timeout_ms}ms", "idle": "30s"}
            connection.execute(_SESSION["set"], limits)
        except BaseException:
            connection.close()
            raise
        return connection


def read(connection: Connection, query: LiteralString, **values: object) -> list[DictRow]:
    """Return the rows of a query of the console, as {column: value}. Raises psycopg.Error."""
    with connection.cursor(row_factory=dict_row) as cursor:
        # Not prepared: a generic plan would name every existing partition (docs/decisions/0029).
        return cursor.execute(query, values, prepare=False).fetchall()


def may_read_all(connection: Connection) -> tuple[str, bool]:
    """Return the login, and whether it has an auditor's rights. Raises psycopg.Error."""
    row = connection.execute(_SESSION["who"]).fetchone()
    assert row is not None
    return row[0], bool(row[1])
