"""A TCP proxy in front of Postgres that counts a client's requests and does something at the one it was told."""

import select
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.proxies.tcp import CHUNK_BYTES, Messages, TcpProxy

# Frontend messages: the end of a request with parameters, one without, and rows of a COPY.
_SYNC, _QUERY, _COPY_DATA = b"S", b"Q", b"d"
# Backend messages that end an answer: ready for the next request, or for the rows of a COPY.
_ANSWERED = {b"Z", b"G"}
_HEADER_BYTES = 5


class When(StrEnum):
    """On which side of the server's work a request is interrupted."""

    BEFORE = "before"  # the server never sees the request
    AFTER = "after"  # the server has done it, the client never hears of it


@dataclass(frozen=True)
class Cut:
    """At which request, counted from 0 since `PostgresProxy.cut_at`, and on which side of it."""

    request: int
    when: When = When.BEFORE
    among_rows: bool = False
    """Count the rows of a COPY only, not every request."""
    act: Callable[[], None] = lambda: None
    """Runs before the connection is cut."""


class PostgresMessages(Messages):
    """Each message has its type and its length before it."""

    def __init__(self, source: socket.socket, untyped: int = 0) -> None:
        """`untyped`: how many messages at the beginning have no type byte, as the startup packet."""
        super().__init__(source)
        self._untyped = untyped

    def receive(self) -> Iterator[bytes]:
        """Wait for data, and yield the messages that are complete."""
        for message in super().receive():
            self._untyped = max(0, self._untyped - 1)
            yield message

    def _length_of_next(self, pending: bytes) -> int | None:
        if len(pending) < _HEADER_BYTES:
            return None
        typed = 0 if self._untyped else 1
        return typed + int.from_bytes(pending[typed : typed + 4], "big")


class PostgresProxy(TcpProxy):
    """Counts requests, and cuts the connection at the one it was told. For client connections one after the other."""

    def __init__(self, dsn: str) -> None:
        """`dsn`: of the server, at one host and port; connections through the proxy are made with `self.dsn`."""
        super().__init__()
        parts = conninfo_to_dict(dsn)
        self._server = (str(parts["host"]), int(str(parts["port"])))
        # The first message is then the startup packet, and everything behind it can be read.
        self.dsn = make_conninfo(dsn, port=self.port, sslmode="disable", gssencmode="disable")
        self.requests = 0
        """Requests since `cut_at`."""
        self._cut: Cut | None = None

    def cut_at(self, cut: Cut | None) -> None:
        """Count from 0 again, and cut there; None: only count."""
        self._cut, self.requests = cut, 0

    @property
    def has_cut(self) -> bool:
        """Whether the cut was made."""
        return self._cut is None

    def _server_address(self) -> tuple[str, int]:
        return self._server

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        sent = PostgresMessages(client, untyped=1)
        while True:
            for ready in select.select([client, server], [], [])[0]:
                if ready is server:
                    answer = server.recv(CHUNK_BYTES)
                    if not answer:
                        return
                    client.sendall(answer)
                    continue
                for message in sent.receive():
                    if self._is_cut(message, server):
                        return
                if sent.ended:
                    return

    def _is_cut(self, message: bytes, server: socket.socket) -> bool:
        """Hand one message on; whether that was the one to cut the connection at."""
        cut, is_rows = self._cut, message[:1] == _COPY_DATA
        if message[:1] not in (_SYNC, _QUERY, _COPY_DATA):
            server.sendall(message)
            return False
        number = self.requests
        self.requests += is_rows or cut is None or not cut.among_rows
        if cut is None or number != cut.request or (cut.among_rows and not is_rows):
            server.sendall(message)
            return False
        if cut.when is When.AFTER:
            server.sendall(message)
            # Rows of a COPY are not answered one by one.
            answers = PostgresMessages(server)
            while not is_rows and not any(answer[:1] in _ANSWERED for answer in answers.receive()):
                if answers.ended:
                    break
        cut.act()
        self._cut = None
        return True
