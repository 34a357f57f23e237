"""Server-sent events: an open page receives its content again when it has changed. All watchers share each read of Postgres."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

MOST_WATCHERS = 20
_BEAT_S = 10.0


class LivePage:
    """One page, with the same content for all its watchers. Used by one event loop."""

    def __init__(self, render: Callable[[], Awaitable[tuple[str, str]]], refresh_s: float) -> None:
        """`render` returns the kind of event, `page` or `trouble`, and its text."""
        self._render = render
        self._refresh_s = refresh_s
        self._lock = asyncio.Lock()
        self._last: tuple[float, tuple[str, str]] | None = None

    async def newest(self) -> tuple[str, str]:
        """Return the kind of event and its text, at most `refresh_s` old."""
        async with self._lock:
            now = time.monotonic()
            if self._last is None or now - self._last[0] >= 0.9 * self._refresh_s:
                self._last = now, await self._render()
            return self._last[1]

    async def events(self, is_let_in: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield the stream of one watcher, for as long as the watcher is let in."""
        shown: tuple[str, str] | None = None
        said_at = time.monotonic()
        yield b"retry: 2000\n\n"
        while is_let_in():
            newest = await self.newest()
            if newest != shown:
                shown, said_at = newest, time.monotonic()
                yield event(*newest)
            elif time.monotonic() - said_at > _BEAT_S:
                said_at = time.monotonic()
                yield b": still there\n\n"
            await asyncio.sleep(self._refresh_s)


class Watchers:
    """Counts the watchers."""

    def __init__(self) -> None:
        self.count = 0

    async def counted(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the events, and count the watcher until it leaves."""
        self.count += 1
        try:
            async for each in events:
                yield each
        finally:
            self.count -= 1


def event(kind: str, text: str) -> bytes:
    """Return an event of the stream."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {kind}\n{lines}\n".encode()
