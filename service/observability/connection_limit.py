"""A bound on the connections of a server, under which strangers take no slot from those who have something to ask."""

from collections import Counter
from typing import Protocol


class Connection(Protocol):
    """One that can make room."""

    @property
    def address(self) -> str:
        """Of the host that has connected."""

    @property
    def rank(self) -> int:
        """0 while it has asked nothing; the more it is worth keeping, the greater."""

    def drop(self) -> None:
        """Close it at once."""


class ConnectionLimit:
    """The open connections of one server. Of its event loop's thread.

    A new one is always let in. Where it is one too many, the address with the most connections makes room, so a stranger takes no slot of
    another address. Of its connections the first of the lowest rank goes: a client with a request sends it at once, so clients that connect
    and wait, however often, keep nobody out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: dict[Connection, None] = {}  # in the order in which they came

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
