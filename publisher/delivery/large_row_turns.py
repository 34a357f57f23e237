"""Lets only one lane of a process at a time hold a row of more than `[publisher] transaction_bytes`: this bounds the lanes' memory.

Lanes wait for their turn in a queue. A turn that does not end is taken away after a time: its lane hangs, and the others would never
deliver their rows. The hanging lane keeps its memory; nothing else depends on turns.

A row that its topic does not take is another matter: protocol/refusals.py decides, lane/parking.py parks it.
"""

import threading
import time


class LargeRowTurns:
    """One for each process. Thread-safe. Lanes get their turn in the order in which they asked."""

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
