"""The wait before the next attempt: longer with every failure, up to a bound, and random so that processes do not retry together."""

import random


class Backoff:
    """Doubles from `least_s` to `most_s` seconds; each wait is between half of that and all of it."""

    def __init__(self, *, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self.failures = 0

    def next(self) -> float:
        """Count a failure and return the seconds to wait."""
        # Without a bound on the exponent, weeks of failures would overflow a float.
        full = min(self._most_s, self._least_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return full * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0
