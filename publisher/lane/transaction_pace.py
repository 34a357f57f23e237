"""Limits how often committed batches make the lanes of a process begin transactions. The caller does the waiting."""

import threading
import time
from collections.abc import Callable

_BURST_S = 1.0


class TransactionPace:
    """Limits a process to `per_second` transactions a second. A burst may use one second's transactions at once. Thread-safe.

    Below the limit no lane waits. At the limit each lane waits for its turn and reads its rows only then, so that all batches committed
    meanwhile share one transaction. With many lanes and small batches, transactions cost more than the rows in them.
    """

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._apart_s = 1 / per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0

    def take_turn(self) -> float:
        """Take a turn; return the seconds until it comes."""
        with self._lock:
            now = self._clock()
            self._next = max(self._next, now - _BURST_S) + self._apart_s
            return max(0.0, self._next - now)
