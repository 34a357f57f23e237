"""Whether a failed job starts again inside its process, and when. Pure: the caller owns the clock, and sleeps.

The strategies are Flink's (its `restart-strategy` options), so that what people know of them holds: `exponential`, `fixed_delay`,
`failure_rate`, `none`.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from service.settings import RestartSettings


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
    """Answers each failure. It counts, so it lives as long as the process."""

    def __init__(self, settings: RestartSettings, chance: Callable[[], float] = random.random) -> None:
        """`chance` returns a number in [0, 1), for the jitter."""
        self._settings = settings
        self._chance = chance
        self._restarts = 0
        self._delay_s = 0.0
        self._restarted_at_s = 0.0
        self._failures: deque[float] = deque()

    def failed(self, now_s: float) -> Restart | GiveUp:
        """Count a failure at `now_s`, seconds of any clock that never goes back, and say what follows."""
        match self._settings.strategy:
            case "none":
                return GiveUp('[restart] strategy is "none"')
            case "failure_rate":
                return self._by_rate(now_s)
            case "fixed_delay" | "exponential":
                return self._by_succession(now_s)

    def _by_rate(self, now_s: float) -> Restart | GiveUp:
        settings, failures = self._settings, self._failures
        failures.append(now_s)
        while now_s - failures[0] >= settings.window_s:
            failures.popleft()
        if len(failures) >= settings.failures:
            return GiveUp(f"failures within {settings.window_s:g} s: {len(failures)} ([restart] failures)")
        return Restart(len(failures), settings.delay_s)

    def _by_succession(self, now_s: float) -> Restart | GiveUp:
        settings = self._settings
        # The delay itself is no quiet time: that begins with the restart.
        if now_s - self._restarted_at_s >= settings.reset_after_s:
            self._restarts = 0
        if settings.attempts and self._restarts >= settings.attempts:
            return GiveUp(f"restarts in succession: {self._restarts} ([restart] attempts)")
        self._restarts += 1
        in_s = settings.delay_s
        if settings.strategy == "exponential":
            longer_s = self._delay_s * settings.multiplier if self._restarts > 1 else settings.delay_s
            self._delay_s = min(longer_s, settings.max_delay_s)
            # Only ever shorter, so that max_delay_s is what its name says.
            in_s = self._delay_s * (1 - settings.jitter * self._chance())
        self._restarted_at_s = now_s + in_s
        return Restart(self._restarts, in_s)
