"""When a failed job starts again inside its process, and after how many failures never. Pure: the caller owns the clock, and sleeps.

The strategies and their settings are Flink's (`restart-strategy: exponential-delay`), so that people's knowledge of them applies.
`Restarts.after` in attempts.py decides which failures count here, from `may_pass` in service/errors.py.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from service.settings import RestartSettings

_MULTIPLIER, _JITTER = 2, 0.1


@dataclass(frozen=True)
class Restart:
    """Start again."""

    attempt: int  # restarts in succession, this one included; 1 after a quiet time
    in_s: float


@dataclass(frozen=True)
class GiveUp:
    """End the process with the failure's exit code."""

    because: str  # names the setting that decided


class RestartStrategy:
    """Decides what follows each failure. It counts failures, so it lives as long as the process."""

    def __init__(self, settings: RestartSettings, chance: Callable[[], float] = random.random) -> None:
        """`chance` returns a number in [0, 1), for the jitter."""
        self._settings = settings
        self._chance = chance
        self._restarts = 0
        self._delay_s = 0.0
        self._restarted_at_s = 0.0

    def failed(self, now_s: float) -> Restart | GiveUp:
        """Count a failure at `now_s`, seconds of any clock that never goes back, and return what follows."""
        settings = self._settings
        if settings.strategy == "none":
            return GiveUp('[restart] strategy is "none"')
        # The delay itself does not count as quiet time, which begins with the restart.
        if now_s - self._restarted_at_s >= settings.reset_after_s:
            self._restarts = 0
        if settings.attempts and self._restarts >= settings.attempts:
            return GiveUp(f"restarts in succession: {self._restarts} ([restart] attempts)")
        self._restarts += 1
        longer_s = self._delay_s * _MULTIPLIER if self._restarts > 1 else settings.delay_s
        self._delay_s = min(longer_s, settings.max_delay_s)
        # The jitter only shortens, so that max_delay_s is the maximum.
        in_s = self._delay_s * (1 - _JITTER * self._chance())
        self._restarted_at_s = now_s + in_s
        return Restart(self._restarts, in_s)
