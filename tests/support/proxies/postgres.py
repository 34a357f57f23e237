"""A TCP proxy in front of Postgres that counts a client's requests and does something at the one it was told."""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# Frontend messages: the end of a request with parameters, one without, and rows of a COPY.
_SYNC, _QUERY, _COPY_DATA = b"S", b"Q", b"d"
# Backend messages that end an answer: ready for the next request, or for the rows of a COPY.
_ANSWERED = {b"Z", b"G"}
_HEADER_BYTES = 5
_CHUNK = 1 << 16


class When(StrEnum):
    """On which side of the server's work a request is interrupted."""

    BEFORE = "before"  # the server never sees the request
    AFTER = "after"  # the server has done it, the client never hears of it


@dataclass(frozen=True)
class Cut:
    """At which request, counted from 0 since `CuttingProxy.cut_at`, and on which side of it."""

    request: int
    when: When = When.BEFORE
    among_rows: bool = False
    """Count the rows of a COPY only, not every request."""
    act: Callable[[], None] = lambda: None
    """Runs before the connection is cut."""


class Messages:
    """Splits what arrives at a socket into the messages of Postgres' protocol."""

    def __init__(self, source: socket.socket, untyped: int = 0) -> None:
        """`untyped`: how many messages at the beginning have no type byte, as the startup packet."""
        self._source, self._untyped = source, untyped
        self._pending = b""
        self.ended = False
        """Whether nothing more will come."""

    def receive(self) -> Iterator[bytes]:
        """Wait for data, and yield the messages that are complete."""
        arrived = self._source.recv(_CHUNK)
        self.ended = not arrived
        self._pending += arrived
        while len(self._pending) >= _HEADER_BYTES:
            typed = 0 if self._untyped else 1
            length = typed + int.from_bytes(self._pending[typed : typed + 4], "big")
            if len(self._pending) < length:
                return
            message, self._pending = self._pending[:length], self._pending[length:]
            self._untyped = max(0, self._untyped - 1)
            yield message


class CuttingProxy:
    """Forwards connections to a server, until the cut ends one of them. Use `with`; client connections one after the other."""

    def __init__(self, dsn: str) -> None:
        """`dsn`: of the server, at one host and port; connections through the proxy are made with `self.dsn`."""
        parts = conninfo_to_dict(dsn)
        self._server = (str(parts["host"]), int(str(parts["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        # The first message is then the startup packet, and everything behind it can be read.
        self.dsn = make_conninfo(dsn, port=port, sslmode="disable", gssencmode="disable")
        self.requests = 0
        """Requests since `cut_at`."""
        self._cut: Cut | None = None
        self._thread = threading.Thread(target=self._accept, name="cutting proxy")

    def cut_at(self, cut: Cut | None) -> None:
        """Count from 0 again, and cut there; None: only count."""
        self._cut, self.requests = cut, 0

    @property
    def has_cut(self) -> bool:
        """Whether the cut was made."""
        return self._cut is None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
                self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Until one of the two ends the connection, or the cut is made."""
        sent = Messages(client, untyped=1)
        while True:
            for ready in select.select([client, server], [], [])[0]:
                if ready is server:
                    answer = server.recv(_CHUNK)
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
            answers = Messages(server)
            while not is_rows and not any(answer[:1] in _ANSWERED for answer in answers.receive()):
                if answers.ended:
                    break
        cut.act()
        self._cut = None
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
