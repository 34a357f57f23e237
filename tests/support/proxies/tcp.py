"""What the proxies in front of Postgres and Kafka have in common: connections that are handed on, and messages to look at."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from devstack.processes.port import LOOPBACK

CHUNK_BYTES = 1 << 16


class Messages(ABC):
    """Splits what arrives at a socket into the messages of a protocol."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._pending = b""
        self.ended = False
        """Whether nothing more will come."""

    def receive(self) -> Iterator[bytes]:
        """Wait for data, and yield the messages that are complete."""
        arrived = self._source.recv(CHUNK_BYTES)
        self.ended = not arrived
        self._pending += arrived
        while (length := self._length_of_next(self._pending)) is not None and length <= len(self._pending):
            message, self._pending = self._pending[:length], self._pending[length:]
            yield message

    @abstractmethod
    def _length_of_next(self, pending: bytes) -> int | None:
        """Bytes of the message that begins here; None while that cannot be told."""


class TcpProxy(ABC):
    """Hands connections on to a server, each in a thread of its own. Use `with`."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        """Where clients connect to."""
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="proxy")

    @abstractmethod
    def _server_address(self) -> tuple[str, int]:
        """Where the server is at this moment."""

    @abstractmethod
    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Hand on, until one of the two ends the connection or it is to be cut. Both are closed then."""

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="proxy connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server_address()) as server:
            pair = {client, server}
            with self._lock:
                self._open |= pair
            try:
                self._forward(client, server)
            finally:
                with self._lock:
                    self._open -= pair

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.cut()
        for thread in self._threads:
            thread.join()
