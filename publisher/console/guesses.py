"""Tokens that are tried: a wrong one costs time, and never that of a right one."""

import asyncio
import time

import structlog

from service.settings import ConsoleSettings

_log = structlog.get_logger()

WRONG_S = 0.5
"""After which a wrong token is answered. A right one is answered at once, however many wrong ones wait."""
MOST_A_SECOND = 200
"""Tries by whoever does not wait for the answer: more than all connections have that do."""
_LOG_S = 1.0


class TooManyGuessesError(Exception):
    """Nobody can log in for a moment; who is logged in is not concerned."""


class Guesses:
    """Of one event loop."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._left = float(MOST_A_SECOND)
        self._filled_at = time.monotonic()
        self._wrong = 0
        self._logged_at = -_LOG_S

    async def is_token(self, given: str, client: str) -> bool:
        """Return whether this is the token. Raises TooManyGuessesError."""
        now = time.monotonic()
        self._left = min(MOST_A_SECOND, self._left + (now - self._filled_at) * MOST_A_SECOND)
        self._filled_at = now
        if self._left < 1:
            raise TooManyGuessesError
        if self._settings.is_token(given):
            return True
        self._left -= 1
        self._wrong += 1
        if now - self._logged_at >= _LOG_S:
            _log.warning("console_wrong_token", client=client, tokens=self._wrong)
            self._wrong, self._logged_at = 0, now
        await asyncio.sleep(WRONG_S)
        return False
