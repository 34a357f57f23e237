"""A TCP proxy that hands on whatever comes, and can be gone for a while."""

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.proxies.tcp import CHUNK_BYTES, TcpProxy


class Link(TcpProxy):
    """Between clients and one server."""

    def __init__(self, host: str, port: int) -> None:
        """`host`, `port`: of the server."""
        super().__init__()
        self._server = host, port
        self._is_down = False

    @contextmanager
    def down(self) -> Iterator[None]:
        """Within the block all connections are cut, and new ones as soon as they are made."""
        self._is_down = True
        self.cut()
        try:
            yield
        finally:
            self._is_down = False

    def _server_address(self) -> tuple[str, int]:
        return self._server

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while not self._is_down:
            for ready in select.select(list(other), [], [])[0]:
                data = ready.recv(CHUNK_BYTES)
                if not data:
                    return
                other[ready].sendall(data)
