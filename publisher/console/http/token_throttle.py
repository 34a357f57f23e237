"""Answers wrong tokens late, and only a few a second, so that nobody can try many. A right token never waits for wrong ones."""

import asyncio
import time

import structlog

from service.settings import ConsoleSettings

_log = structlog.get_logger()

WRONG_S = 0.5
"""Seconds until a wrong token is answered. A right token is answered at once, however many wrong ones wait."""
MOST_A_SECOND = 200
"""The most wrong tokens a second. Connections wait for their answers, so that all of them together send fewer."""
_MOST_KNOWN = 64
_LOG_S = 1.0


class TooManyWrongTokensError(Exception):
    """At this moment only addresses that have logged in before can log in. Existing logins continue."""


class _Budget:
    """The number of wrong tokens that are still answered. It refills within a second."""

    def __init__(self, now: float) -> None:
        self._left = float(MOST_A_SECOND)
        self._filled_at = now

    def is_spent(self, now: float) -> bool:
        self._left = min(MOST_A_SECOND, self._left + (now - self._filled_at) * MOST_A_SECOND)
        self._filled_at = now
        return self._left < 1

    def spend(self) -> None:
        self._left -= 1


class TokenThrottle:
    """Used by one event loop. All strangers share one budget of wrong tokens; an address that has given the right token has its own."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._strangers = _Budget(time.monotonic())
        self._known: dict[str, _Budget] = {}  # ordered by the last login, newest last
        self._wrong = 0
        self._logged_at = -_LOG_S

    async def is_token(self, given: str, client: str) -> bool:
        """Return whether this is the token, given by a client at this address. Raises TooManyWrongTokensError."""
        now = time.monotonic()
        budget = self._known.get(client, self._strangers)
        if budget.is_spent(now):
            raise TooManyWrongTokensError
        if self._settings.is_token(given):
            self._known[client] = self._known.pop(client) if client in self._known else _Budget(now)
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            return True
        budget.spend()
        self._wrong += 1
        if now - self._logged_at >= _LOG_S:
            _log.warning("console_wrong_token", client=client, tokens=self._wrong)
            self._wrong, self._logged_at = 0, now
        await asyncio.sleep(WRONG_S)
        return False
