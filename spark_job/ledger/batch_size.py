"""How many events a batch may have. What a failure has shown to be too large is remembered, over attempts and processes. Pure.

- After a failure that size can explain, the next run takes a quarter. Any other failure changes nothing, and so does one of a run that
  has committed a full batch of that size: something else is to blame, or larger events, and then the next run commits none.
- A failure with a single event shows that size is not to blame at all: what was remembered is forgotten.
- Four batches later it takes four times as many, up to half of what failed.
- That is the ceiling. It is raised to twice as much after many batches, twice as many for each time that this has failed before: a backlog
  that does not fit costs a number of failures that grows with the logarithm of its batches.
- A run that was stopped, or whose process ended for another reason, ends the memory: the next one takes what the settings allow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

_SHRINK = 4
_SUCCESSES_TO_GROW = 4
_SUCCESSES_TO_DARE = 16
_MOST_DOUBLINGS = 12
FULL = 0.9
"""A batch with this share of its most events is full: Spark shares them among the partitions by what each has, and rounds."""


@dataclass(frozen=True)
class PastRun:
    """What a run tells the next one."""

    max_events: int
    """What it began with."""
    failed_at: int | None
    """The size of its batches when it ended by a failure that this can explain; None where it did not."""
    stopped: bool
    """Whether it ended as asked."""


class BatchSize:
    """The size of a run's batches. The main thread owns it."""

    def __init__(self, max_events: int, most: int, ceiling: int | None = None, dares: int = 0) -> None:
        """`most`: what the settings allow. `ceiling`: what growth stops at for now. `dares`: how often raising that has failed."""
        self.max_events = max_events
        """Of the query that runs, or begins."""
        self._most = most
        self._ceiling = most if ceiling is None else min(ceiling, most)
        self._patience = _SUCCESSES_TO_DARE * 2 ** min(dares, _MOST_DOUBLINGS)
        self._fits = False

    @property
    def failed_at(self) -> int | None:
        """The size, where it may be to blame for a failure; None where a full batch of it was committed."""
        return None if self._fits else self.max_events

    def committed(self, events: int) -> None:
        """A batch of so many events was committed."""
        self._fits |= events >= FULL * self.max_events

    @property
    def successes_to_grow(self) -> int | None:
        """Batches of this size after which it grows; None where it is what the settings allow."""
        if self.max_events >= self._most:
            return None
        return _SUCCESSES_TO_GROW if self.max_events < self._ceiling else self._patience

    def grow(self) -> None:
        """So many have succeeded."""
        self._fits = False
        if self.max_events < self._ceiling:
            self.max_events = min(self.max_events * _SHRINK, self._ceiling)
        else:
            self.max_events = self._ceiling = min(2 * self._ceiling, self._most)
            self._patience = _SUCCESSES_TO_DARE


def next_size(past: Iterable[PastRun], most: int) -> BatchSize:
    """Return the size with which a run begins. `past`: the newest run first."""
    chain: Sequence[PastRun] = list(takewhile(lambda run: not run.stopped, past))
    if not chain:
        return BatchSize(most, most)
    newest = chain[0]
    failed = [run.failed_at for run in chain if run.failed_at is not None]
    if not failed:
        return BatchSize(min(newest.max_events, most), most)
    if failed[0] == 1:
        return BatchSize(1 if newest.failed_at == 1 else min(newest.max_events, most), most)
    begin = newest.max_events if newest.failed_at is None else newest.failed_at // _SHRINK
    begin = max(1, min(begin, most))
    # The failures before, on the way down from a greater size, have tried another ceiling.
    dares = sum(failed[0] < 2 * size <= 4 * failed[0] for size in failed) - 1
    return BatchSize(begin, most, max(begin, failed[0] // 2), dares)
