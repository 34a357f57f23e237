"""A bound on the connections of a server: clients that only connect take no slot from those that send a request."""

from collections import Counter
from typing import Protocol


class Connection(Protocol):
    """A connection that can be closed to make room."""

    @property
    def address(self) -> str:
        """The address of the client's host."""

    @property
    def rank(self) -> int:
        """0 before its request; connections of a greater rank are kept longer."""

    def drop(self) -> None:
        """Close it at once."""


class ConnectionLimit:
    """The open connections of one server. Used only in its event loop's thread.

    A new connection is always accepted. If it exceeds the limit, one of the address with the most connections is closed, so a client takes
    no slot of another address. The oldest connection of the lowest rank is closed: a client with a request sends it at once, so clients
    that only connect keep nobody out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: dict[Connection, None] = {}  # in the order in which they were opened

    def enter(self, new: Connection) -> None:
        """Take a connection in."""
        if len(self._connections) >= self._most:
            taken = Counter(each.address for each in self._connections)
            min(self._connections, key=lambda each: (-taken[each.address], each.rank)).drop()
        self._connections[new] = None

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._connections.pop(connection, None)

    def drop_all(self) -> None:
        """Close every connection."""
        for connection in list(self._connections):
            connection.drop()
