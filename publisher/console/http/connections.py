"""Limits the console's connections: how many there may be, and how long one may take to send a request."""

import asyncio
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.observability.connection_limit import ConnectionLimit

MOST_CONNECTIONS = 64
REQUEST_S = 5.0
"""The seconds that a connection has for a complete request with its body, and after each response for the next request."""
# uvicorn may accept this many connections before the limit closes one. Together with the limit they bound the console's descriptors.
_ACCEPTED_AT_ONCE = 32
_BACKLOG = 1_024


class LimitedServer(uvicorn.Server):
    """uvicorn with a limit on connections, and on how long they may be silent."""

    def __init__(self, app: Any, **options: Any) -> None:
        """`options`: the options of uvicorn."""
        limit = ConnectionLimit(MOST_CONNECTIONS)
        protocol: Any = partial(_Connection, limit)
        super().__init__(uvicorn.Config(app, http=protocol, backlog=_ACCEPTED_AT_ONCE, **options))

    async def startup(self, sockets: Any = None) -> None:
        """Listen."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)


class _Connection(H11Protocol):
    """uvicorn's connection, which ConnectionLimit may drop to make room."""

    def __init__(self, limit: ConnectionLimit, **given: Any) -> None:
        super().__init__(**given)
        self._limit = limit
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The client's address; behind a proxy, the proxy's address."""
        return str(self.client[0]) if self.client else ""

    @property
    def rank(self) -> int:
        """0: no complete request; 1: a request waits for its response; 2: the response has begun (a page, or its live updates)."""
        return 0 if self._is_silent() else 1 + self.cycle.response_started

    def drop(self) -> None:
        """Close the connection at once."""
        self._limit.leave(self)
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        """As uvicorn does."""
        super().connection_made(transport)
        self._limit.enter(self)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn does."""
        super().connection_lost(exc)
        self._limit.leave(self)
        self._cancel_deadline()

    def handle_events(self) -> None:
        """As uvicorn does."""
        super().handle_events()
        if not self._is_silent():
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        """As uvicorn does."""
        self._wait_for_request()
        super().on_response_complete()

    def _is_silent(self) -> bool:
        """Whether the client owes a request: none is complete and unanswered."""
        return self.cycle is None or bool(self.cycle.response_complete or self.cycle.more_body)

    def _wait_for_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(REQUEST_S, self._waited)

    def _waited(self) -> None:
        if self.transport.get_write_buffer_size():
            self._wait_for_request()  # the client is still reading the previous response
        else:
            self.drop()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
