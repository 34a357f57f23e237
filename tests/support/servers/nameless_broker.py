"""A broker of a few lines that can answer requests for metadata without naming a broker, as one does that has just been fenced.

It speaks what a client needs to find out which cluster it is: ApiVersions, and Metadata up to version 4. It can also name another broker
than itself, one that leads every topic and that nobody can reach.
"""

import asyncio
import contextlib
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
        """Answer within the block."""
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self._serve, LOOPBACK, 0))
        self.port = server.sockets[0].getsockname()[1]
        thread = Thread(target=loop.run_forever, name="nameless broker")
        thread.start()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(_end(server), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, version, correlation = struct.unpack(">hhi", request[:8])
                nameless = self.nameless
                body = _versions(version) if key == _API_VERSIONS else self._metadata(request, version)
                answer = struct.pack(">i", correlation) + body
                writer.write(struct.pack(">i", len(answer)) + answer)
                await writer.drain()
                if key == _METADATA and nameless:
                    self.nameless_answers += 1
                    break
        writer.close()
        # Else the loop may stop before it has closed the socket, and whatever test runs when Python notices that fails.
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()

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


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)
