"""A delivery's connection to Postgres. A new connection may lead to another outbox, so it is checked before use."""

from typing import Any

import psycopg

from db.connection import connect
from publisher.delivery.context import Context
from publisher.outbox.identity import check_unchanged
from publisher.outbox.lease import LeaseLostError
from publisher.protocol.stop_reasons import StoppedError


class OutboxConnection:
    """Connects at the first use, and again after a loss."""

    def __init__(self, context: Context, name: str) -> None:
        """`name`: the application name that Postgres shows."""
        self._context = context
        self.name = name
        self._connection: psycopg.Connection[Any] | None = None

    def open(self) -> psycopg.Connection[Any]:
        """Return a checked connection. Raises StoppedError if it leads to another outbox or server, UnavailableError."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = connect(self._context.settings.postgres, self.name, autocommit=True)
        self._connection = None
        try:
            found = check_unchanged(connection, self._context.outbox)
        except BaseException:
            connection.close()
            raise
        self._context.timelines.notice(found.server_timeline)
        self._connection = connection
        return connection

    def get(self) -> psycopg.Connection[Any]:
        """Return the connection during a tenure. Raises LeaseLostError if a new one leads to another outbox or server, UnavailableError."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            return self.open()
        except StoppedError as error:
            raise LeaseLostError(
                f"the connection to Postgres was lost, and a new one leads elsewhere: {error}"
            ) from error

    def discard(self) -> None:
        """Close the connection unless it is idle."""
        if self._connection is not None and (
            self._connection.closed
            or self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
        ):
            self._connection.close()
            self._connection = None

    def take(self) -> psycopg.Connection[Any] | None:
        """Return the connection, which the caller must close; None if there is none."""
        connection, self._connection = self._connection, None
        return connection
