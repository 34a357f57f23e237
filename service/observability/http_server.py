"""A small HTTP server for a few pages, which strangers can neither fill nor delay.

One thread reads all requests, so a connection costs only a descriptor until its request is complete, within a second. If all slots are
taken, a connection of the address with the most connections is closed for a new one (connection_limit.py). Each page is made in its own
thread, once for all clients that wait for it, so that a page that hangs or is requested too often delays no other.

A connection serves one request. Bytes after the request are not read.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog

from service.lifecycle.threads import supervised
from service.observability.connection_limit import ConnectionLimit

_log = structlog.get_logger()

MOST_CONNECTIONS = 128
REQUEST_S = 1.0
"""Seconds within which a request must be complete."""
_ANSWER_S = 10.0
"""Seconds within which it must be answered and the client must have read the answer. A slow client may be closed earlier for others."""
_MOST_REQUEST_BYTES = 16_384
# Fewer at once than slots, so that each connection is read at least once before it may be closed for another.
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 1_024
_JOIN_S = 3.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class HttpResponse(NamedTuple):
    """The answer of a page."""

    status: int
    content_type: str
    body: bytes


Page = Callable[[str], HttpResponse]
"""Makes an answer, given the request's `Accept` header."""


def text(status: int, said: str) -> HttpResponse:
    """Return an answer for people."""
    return HttpResponse(status, "text/plain; charset=utf-8", f"{said}\n".encode())


@contextmanager
def serving(listening: socket.socket, pages: Mapping[str, Page]) -> Iterator[None]:
    """Serve `pages`, {path: page}, in a thread until the block ends, and close the socket then."""
    loop = asyncio.new_event_loop()
    pool = _Pool(loop, pages)
    listening.setblocking(False)
    server = loop.run_until_complete(
        loop.create_server(lambda: _Connection(pool), sock=listening, backlog=_ACCEPTED_AT_ONCE)
    )
    listening.listen(_BACKLOG)
    thread = supervised(loop.run_forever, "endpoint", threading.Event())
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_JOIN_S)
        if not thread.is_alive():
            loop.run_until_complete(_end(server, pool.connections))
            loop.close()


async def _end(server: asyncio.Server, connections: ConnectionLimit) -> None:
    server.close()
    while accepting := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(accepting)
    connections.drop_all()
    await asyncio.sleep(0)  # lets the transports close their sockets


class _Pool:
    """The state that all connections share, and the clients that wait for each page. Used only in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pages: Mapping[str, Page]) -> None:
        self.loop = loop
        self._pages = pages
        self._being_made: set[str] = set()
        self._waiting: dict[str, dict[str, list[Callable[[HttpResponse], None]]]] = {
            path: {} for path in pages
        }
        self.connections = ConnectionLimit(MOST_CONNECTIONS)

    def ask(self, path: str, accept: str, answer: Callable[[HttpResponse], None]) -> None:
        """Start making a page, and call `answer` with it. Requests for the page that wait for their turn get the same answer."""
        if path not in self._pages:
            answer(text(404, f"there is no {path} here, only {', '.join(sorted(self._pages))}"))
            return
        self._waiting[path].setdefault(accept, []).append(answer)
        if path not in self._being_made:
            self._make_next(path)

    def forget(self, path: str, accept: str, answer: Callable[[HttpResponse], None]) -> None:
        """Withdraw the request of a client that is gone: its page would delay the pages of waiting clients."""
        answers = self._waiting.get(path, {}).get(accept, [])
        if answer in answers:
            answers.remove(answer)
            if not answers:
                del self._waiting[path][accept]

    def _make_next(self, path: str) -> None:
        waiting = self._waiting[path]
        if not waiting:
            return
        accept = next(iter(waiting))
        answers = waiting.pop(accept)

        def make() -> None:
            found = _made(self._pages[path], path, accept)
            with contextlib.suppress(RuntimeError):  # if the loop is closed
                self.loop.call_soon_threadsafe(made, found)

        def made(found: HttpResponse) -> None:
            self._being_made.discard(path)
            for answer in answers:
                answer(found)
            self._make_next(path)

        self._being_made.add(path)
        try:
            # A daemon: a hanging page must not delay the end of the process.
            threading.Thread(target=make, name="endpoint page", daemon=True).start()
        except RuntimeError as error:
            self.loop.call_soon(made, text(503, f"{path} cannot be made now: {error}"))


def _made(page: Page, path: str, accept: str) -> HttpResponse:
    try:
        return page(accept)
    except Exception as error:  # noqa: BLE001 - the client gets it, and the endpoint continues
        _log.error("endpoint_failed", path=path, exc_info=error)
        return text(
            500, f"{path} failed: {type(error).__name__}. The traceback is in the log (`endpoint_failed`)"
        )


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    _transport: asyncio.Transport
    address = ""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._received = b""
        self.has_asked = self._has_ended = False
        self._forget: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = str((transport.get_extra_info("peername") or [""])[0])
        self._pool.connections.enter(self)
        self._deadline = self._pool.loop.call_later(REQUEST_S, self.drop)

    def connection_lost(self, _error: Exception | None) -> None:
        self._deadline.cancel()
        self._forget()
        self._pool.connections.leave(self)

    @property
    def rank(self) -> int:
        return int(self.has_asked and not self._has_ended)

    def drop(self) -> None:
        """Close the connection at once, even before its answer is sent."""
        self._pool.connections.leave(self)
        self._transport.abort()

    def eof_received(self) -> bool:
        self._has_ended = True
        return self.has_asked  # a client may close its half and wait for the answer

    def data_received(self, data: bytes) -> None:
        if self.has_asked:
            return
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if not end and len(self._received) <= _MOST_REQUEST_BYTES:
            return
        self.has_asked = True
        self._received = b""
        self._deadline.cancel()
        self._deadline = self._pool.loop.call_later(_ANSWER_S, self.drop)
        if not end:
            self._answer(text(431, f"a request has {_MOST_REQUEST_BYTES} bytes at the most"), with_body=True)
            return
        line, *headers = head.decode("latin-1").split("\r\n")
        match line.split(" "):
            case ["GET" | "HEAD" as method, target, "HTTP/1.0" | "HTTP/1.1"]:
                self._ask(target, _accept(headers), with_body=method == "GET")
            case [_, _, "HTTP/1.0" | "HTTP/1.1"]:
                self._answer(text(501, "only GET and HEAD are known here"), with_body=True)
            case _:
                self._answer(text(400, "this is no HTTP request"), with_body=True)

    def _ask(self, target: str, accept: str, *, with_body: bool) -> None:
        try:
            path = urlsplit(target).path
        except ValueError:
            self._answer(text(400, "this is no address"), with_body=with_body)
            return
        answer = partial(self._answer, with_body=with_body)
        self._forget = partial(self._pool.forget, path, accept, answer)
        self._pool.ask(path, accept, answer)

    def _answer(self, answer: HttpResponse, *, with_body: bool) -> None:
        if self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nServer: spark-outbox\r\nConnection: close\r\n"
            f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\nCache-Control: no-store\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (answer.body if with_body else b""))
        self._transport.close()  # after the answer is sent


def _accept(headers: list[str]) -> str:
    for header in headers:
        name, _, value = header.partition(":")
        if name.lower() == "accept":
            return value.strip()
    return ""
