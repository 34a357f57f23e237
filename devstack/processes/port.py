"""A loopback port from the operating system that stays ours while its server is down."""

import socket

LOOPBACK = "127.0.0.1"


class ReservedPort:
    """A TCP port on 127.0.0.1, kept by a bound socket that never listens.

    With SO_REUSEADDR on both sides a server may listen on it at any time. While none does, connections are
    refused, nobody else is given the port, and a client that keeps reconnecting cannot connect to itself on
    it (which would keep the restarted server from binding).
    """

    def __init__(self, preferred: int = 0) -> None:
        """Reserve `preferred` if it is free, else (or for 0) any free port."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((LOOPBACK, preferred))
        except OSError:
            self._socket.bind((LOOPBACK, 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


def is_listening(port: int) -> bool:
    """Whether something accepts connections on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
