"""Limits the rate of a replay between whole transactions. Pure: the caller passes the time, and waits, but never inside a transaction."""


class Pace:
    """Limits a replay to `rate` events a second (None: no limit). A transaction that was faster than that delays the next one."""

    def __init__(self, rate: int | None) -> None:
        self.rate = rate
        self._due = 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next transaction may begin."""
        return max(0.0, self._due - now)

    def sent(self, events: int, began: float) -> None:
        """Count a transaction that began at `began` (monotonic seconds). Unused time does not accumulate."""
        if self.rate is not None:
            self._due = max(self._due, began) + events / self.rate

    def rows(self, events_per_row: float, most: int) -> int:
        """Return the most rows that a transaction may hold: about one second's events at the rate."""
        if self.rate is None or events_per_row <= 0:
            return most
        return max(1, min(most, int(self.rate / events_per_row)))


class Speed:
    """Events a second over about the last half minute; recent ones weigh more."""

    _MEMORY_S = 15.0

    def __init__(self, began: float) -> None:
        self._last = began
        self._rate: float | None = None

    def sent(self, events: int, now: float) -> float:
        """Count events sent since the last call; return the rate."""
        elapsed = max(now - self._last, 1e-3)
        self._last = now
        current = events / elapsed
        share = min(1.0, elapsed / self._MEMORY_S)
        self._rate = current if self._rate is None else self._rate + share * (current - self._rate)
        return self._rate
