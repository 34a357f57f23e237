"""Lets only one lane of a process at a time hold a row of more than `[publisher] transaction_bytes`. This limits the memory of the lanes.

Lanes wait for their turn in a queue. A turn that lasts too long is taken away, because its lane hangs and the others would never deliver
their rows. The hanging lane keeps its memory; nothing else depends on turns.

Rows that are too large for their topic are a different matter: protocol/refusals.py detects them, lane/parking.py parks them.
"""

import threading
import time


class LargeRowTurns:
    """The turns of one process. Thread-safe. Lanes get their turn in the order in which they asked."""

    def __init__(self, lasts_s: float = 70.0) -> None:
        """`lasts_s`: how long a turn may last while others wait for theirs."""
        self._lasts_s = lasts_s
        self._changed = threading.Condition()
        self._lanes: list[object] = []
        self._since = 0.0

    def take(self, lane: object, timeout_s: float) -> bool:
        """Wait at most `timeout_s`; return whether it is this lane's turn. The lane keeps its turn, or stays in the queue, until `end`."""
        with self._changed:
            if lane not in self._lanes:
                self._lanes.append(lane)
                if len(self._lanes) == 1:
                    self._since = time.monotonic()
            if self._changed.wait_for(lambda: self._lanes[0] is lane, timeout_s):
                return True
            if time.monotonic() - self._since > self._lasts_s:
                self._remove(self._lanes[0])
            return self._lanes[0] is lane

    def end(self, lane: object) -> None:
        """End the lane's turn, or its wait for one."""
        with self._changed:
            if lane in self._lanes:
                self._remove(lane)

    def _remove(self, lane: object) -> None:
        if self._lanes[0] is lane:
            self._since = time.monotonic()
        self._lanes.remove(lane)
        self._changed.notify_all()
