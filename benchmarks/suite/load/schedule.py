"""What is due when: sessions of the generator's shape that start evenly at a rate, made as they are needed. Pure.

The generator makes a thousand sessions at a time, which takes a tenth of a second in which nothing would be sent. Here some sessions of
the generator are taken apart once, and a new session is one of those under another key, which costs a join of bytes for each event.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from examples.clickstream.generator import Shape, generate_blocks

TICK_MS = 5
_PATTERNS = 64
_KEY_DIGITS = 8
_END = b'{"event_type":"end_event"'

Due = tuple[bytes, bytes, bool]
"""Key, value, and whether it ends its session."""


@dataclass(frozen=True)
class Event:
    """One event of a pattern."""

    tick: int
    """Ticks after its session's start."""
    around: tuple[bytes, ...]
    """What stands around the session's key in the value."""
    is_end: bool


Pattern = tuple[Event, ...]


def patterns(prefix: str, entries: int = 100, bytes_per_event: int = 150) -> list[Pattern]:
    """Take sessions of the generator apart. `prefix`: of the keys that are to be put in; it counts for the size."""
    shape = Shape(
        _PATTERNS,
        sessions_per_second=10,
        entries=entries,
        bytes_per_event=bytes_per_event,
        start_ms=0,
        key_prefix=prefix,
    )
    by_key: dict[bytes, list[Event]] = {}
    starts: dict[bytes, int] = {}
    for block in generate_blocks(shape):
        for key, value, at_ms in block:
            tick = (at_ms - starts.setdefault(key, at_ms)) // TICK_MS
            event = Event(tick, tuple(value.split(key)), value.startswith(_END))
            by_key.setdefault(key, []).append(event)
    return [tuple(events) for events in by_key.values()]


class Schedule:
    """The events of one tick after the other. Sessions start evenly: after *n* ticks, rate x *n* x TICK_MS / 1000 have started."""

    def __init__(self, rate: float, prefix: str, made: Sequence[Pattern]) -> None:
        """`rate`: sessions that start in a second."""
        self.started = 0
        self._per_tick = rate * TICK_MS / 1000
        self._prefix = prefix.encode()
        self._patterns = made
        self._ticks = 0
        longest = max(event.tick for pattern in made for event in pattern)
        self._due: deque[list[Due]] = deque([] for _ in range(longest + 1))

    def next(self, *, starting: bool = True) -> list[Due]:
        """Return what is due in the next tick, in order. `starting` false: no more sessions start, those that have go on to their ends."""
        self._ticks += 1
        while starting and self.started < int(self._ticks * self._per_tick):
            key = self._prefix + b"%0*d" % (_KEY_DIGITS, self.started)
            due = self._due
            for event in self._patterns[self.started % len(self._patterns)]:
                due[event.tick].append((key, key.join(event.around), event.is_end))
            self.started += 1
        now = self._due.popleft()
        self._due.append([])
        return now

    @property
    def is_empty(self) -> bool:
        """Whether no started session has an event left."""
        return not any(self._due)
