"""Whether the loops of a process turn, for `/healthz`. A loop that waits for an absent server still turns; a loop that hangs does not.

Each loop reports the longest time until its next turn, because the settings bound its waits. Only a loop that is late by more than a grace
counts as hung, so a process that waits for Kafka or Postgres for days stays healthy.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from service.observability.verdict import HealthVerdict

Clock = Callable[[], float]


class LifeSign(Protocol):
    """Reports that a loop turns, as `Loop.turn` does."""

    def __call__(self, within_s: float | None = None, doing: str = "") -> None: ...


def unwatched(within_s: float | None = None, doing: str = "") -> None:
    """Do nothing: the life sign of work that no loop runs."""


class Loop:
    """One loop. Only its own thread turns it; any thread may read it."""

    def __init__(self, within_s: float, clock: Clock) -> None:
        self._within_s = within_s
        self._clock = clock
        self.ended_by: str | None = None
        """The exception that ended the loop; None while it turns."""
        self.turn()

    def turn(self, within_s: float | None = None, doing: str = "") -> None:
        """Report that the loop turns, what it does now, and that its next turn comes within `within_s` seconds (None: the usual time)."""
        # One assignment, so that a reader never sees a part of it.
        self.turned = self._clock(), self._within_s if within_s is None else within_s, doing

    def late_s(self) -> float:
        """Return how many seconds the loop exceeds the time that it reported; 0 or less if it does not."""
        turned_at, within_s, _ = self.turned
        return self._clock() - turned_at - within_s


class Loops:
    """All loops of a process. Thread-safe."""

    def __init__(self, grace_s: float, clock: Clock = time.monotonic) -> None:
        """`grace_s`: by how much a loop may exceed the time that it reported."""
        self._grace_s = grace_s
        self._clock = clock
        self._lock = threading.Lock()
        self._loops: dict[str, Loop] = {}

    @contextmanager
    def loop(self, name: str, within_s: float) -> Iterator[Loop]:
        """Watch the loop inside the block. A loop that ends by an exception stays listed, because a dead thread no longer turns."""
        loop = Loop(within_s, self._clock)
        with self._lock:
            self._loops[name] = loop
        try:
            yield loop
        except BaseException as error:
            loop.ended_by = type(error).__name__
            raise
        # The name may already belong to the thread that follows this one.
        with self._lock:
            if self._loops.get(name) is loop:
                del self._loops[name]

    def verdict(self) -> HealthVerdict:
        """Return whether every loop turns."""
        with self._lock:
            loops = dict(self._loops)
        now = self._clock()
        reasons: list[str] = []
        shown: dict[str, dict[str, object]] = {}
        for name, loop in sorted(loops.items()):
            turned_at, within_s, doing = loop.turned
            allowed_s = within_s + self._grace_s
            ago_s = now - turned_at
            if loop.ended_by is not None:
                reasons.append(f"{name} was ended by {loop.ended_by}")
            elif ago_s > allowed_s:
                where = f" while it {doing}" if doing else ""
                reasons.append(
                    f"{name} has not turned for {ago_s:.1f} s{where}, allowed are {allowed_s:.1f} s"
                )
            shown[name] = {"turned_s_ago": round(ago_s, 1), "allowed_s": round(allowed_s, 1)}
            if doing:
                shown[name]["doing"] = doing
        return HealthVerdict(reasons, {"loops": shown})
