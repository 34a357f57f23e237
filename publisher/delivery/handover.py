"""Lets the lanes of a process take turns in handing their rows to librdkafka.

Handing over keeps the interpreter's lock busy: lanes that do it at once only take the lock from each other, every few milliseconds. A
turn lasts until all its rows are handed over, or until the lane must wait for room in its client's queue. A lane whose turn makes no
progress hangs. The lanes that wait for it then give up, so that other processes can deliver their rows (decision 27).
"""

import threading
import time

from publisher.protocol.stop_reasons import HandoverStuckError
from service.observability.loops import LifeSign

HANDING_OVER = "hands rows to Kafka's client"
_WAITING = "waits for its turn to hand rows to Kafka's client"
# The wait is divided into slices: after a pause of the whole process only one slice has expired, not the whole wait.
_SLICES = 8
_LEAST_PATIENCE_S = 1.0


def patience_s(lease_s: float) -> float:
    """Return how long a turn may make no progress. It is short enough for other processes to take the lanes before a lease would expire."""
    return max(_LEAST_PATIENCE_S, lease_s / 3)


class HandoverTurns:
    """The turns of one process. Thread-safe."""

    def __init__(self, patience_s: float = 5.0) -> None:
        """`patience_s`: how long a turn may make no progress."""
        self.patience_s = patience_s
        self._lock = threading.Lock()
        self._moves = 0
        self._holder = ""
        self.stuck: str | None = None
        """Why waiting lanes have given up, None once the turn has moved again."""

    def take(self, lane: str, alive: LifeSign) -> float:
        """Wait for the turn; return the seconds waited. `lane`: the waiting lane, for messages. Raises HandoverStuckError."""
        began = time.monotonic()
        while True:
            alive(2 * self.patience_s, _WAITING)
            moves = self._moves
            for _ in range(_SLICES):
                if self._lock.acquire(timeout=self.patience_s / _SLICES):
                    self._holder = lane
                    self.move(alive)
                    return time.monotonic() - began
            if self._moves == moves:
                self.stuck = reason = (
                    f"{self._holder} of this process hangs: it {HANDING_OVER}, has not got further for {self.patience_s:g} s, and the "
                    "other lanes wait for their turn"
                )
                # Checked again: a turn that moved just now cleared `stuck` before it was set here, and might not move again.
                if self._moves == moves:
                    raise HandoverStuckError(reason)
                self.stuck = None

    def move(self, alive: LifeSign) -> None:
        """Report that the turn makes progress. Only its holder calls this."""
        self._moves += 1
        self.stuck = None
        alive(self.patience_s, HANDING_OVER)

    def end(self) -> None:
        """Let the next lane have its turn."""
        self._moves += 1
        self.stuck = None
        self._lock.release()
