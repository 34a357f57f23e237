"""A broker of a few lines that can answer requests for metadata without naming a broker, as one does that has just been fenced.

It speaks what a client needs to find out which cluster it is: ApiVersions, and Metadata up to version 4. It can also name another broker
than itself, one that leads every topic and that nobody can reach.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from devstack.processes.port import LOOPBACK

_LIST_OFFSETS, _METADATA, _API_VERSIONS = 2, 3, 18
_UNSUPPORTED_VERSION, _UNKNOWN_TOPIC = 35, 3
_NEWEST_METADATA = 4


class NamelessBroker:
    """`nameless`: whether answers name no broker, and each connection is closed after one."""

    def __init__(self, advertised: tuple[str, int] | None = None) -> None:
        """`advertised`: the host and the port of the one broker, None for its own. With others each topic that is asked for exists."""
        self._advertised = advertised
        self.nameless = False
        self.nameless_answers = 0
        self.port = 0

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return f"{LOOPBACK}:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer within the block. No connection and no thread is left behind it."""
        with socket.create_server((LOOPBACK, 0)) as listener:
            self.port = listener.getsockname()[1]
            accepting = Thread(target=self._accept, args=(listener,), name="nameless broker")
            accepting.start()
            try:
                yield
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                accepting.join()

    def _accept(self, listener: socket.socket) -> None:
        """Serve each connection in a thread of its own, until the listener is shut down; then end them all."""
        served: list[tuple[socket.socket, Thread]] = []
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                thread = Thread(target=self._serve, args=(connection,), name="nameless broker's connection")
                served.append((connection, thread))
                thread.start()
        for connection, _ in served:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in served:
            thread.join()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as requests:
            while len(size := requests.read(4)) == 4:
                (length,) = struct.unpack(">i", size)
                request = requests.read(length)
                if len(request) < length:
                    break
                key, version, correlation = struct.unpack(">hhi", request[:8])
                nameless = self.nameless
                body = _versions(version) if key == _API_VERSIONS else self._metadata(request, version)
                answer = struct.pack(">i", correlation) + body
                connection.sendall(struct.pack(">i", len(answer)) + answer)
                if key == _METADATA and nameless:
                    self.nameless_answers += 1
                    break

    def _metadata(self, request: bytes, version: int) -> bytes:
        brokers = b""
        if not self.nameless:
            host, port = self._advertised or (LOOPBACK, self.port)
            brokers = struct.pack(">i", 1) + _text(host) + struct.pack(">ih", port, -1)
        return b"".join(
            [
                struct.pack(">i", 0) if version >= 3 else b"",
                struct.pack(">i", 0 if self.nameless else 1),
                brokers,
                _text("cluster"),
                struct.pack(">i", -1 if self.nameless else 1),
                _topics(request, version, exist=self._advertised is not None),
            ]
        )


def _versions(version: int) -> bytes:
    error = _UNSUPPORTED_VERSION if version else 0
    known = ((_API_VERSIONS, 0, 0), (_METADATA, 0, _NEWEST_METADATA), (_LIST_OFFSETS, 0, 2))
    return struct.pack(">hi", error, len(known)) + b"".join(struct.pack(">hhh", *each) for each in known)


def _topics(request: bytes, version: int, *, exist: bool) -> bytes:
    """Each topic that is asked for: with one partition, or as one that is not there."""
    error, partitions = _UNKNOWN_TOPIC, struct.pack(">i", 0)
    if exist:
        # One, without error: partition 0, led by broker 1, whose only replica it has in sync.
        error, partitions = 0, struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)
    (client_id,) = struct.unpack(">h", request[8:10])
    at = 10 + max(0, client_id)
    (count,) = struct.unpack(">i", request[at : at + 4])
    at += 4
    found = struct.pack(">i", max(0, count))
    for _ in range(max(0, count)):
        (size,) = struct.unpack(">h", request[at : at + 2])
        internal = b"\0" if version >= 1 else b""
        found += struct.pack(">h", error) + request[at : at + 2 + size] + internal + partitions
        at += 2 + size
    return found


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
