"""How many events a batch may have. Failed sizes are remembered across attempts and processes. Pure.

- After a failure that size can explain, the next run takes a quarter of the events. Any other failure changes nothing. A failure
  after a full batch of that size changes nothing either: size is not the cause, or events have grown. If they have, the next run
  fails before it commits a full batch.
- A failure with a single event shows that size is not the cause: all remembered sizes are forgotten.
- After four batches the size grows fourfold, up to a ceiling: half of the size that failed.
- After many batches at the ceiling, the ceiling is doubled. If that fails, the number of batches until the next attempt doubles. So
  the number of a backlog's failures grows only with the logarithm of the number of its batches.
- After a run that was stopped, or whose process ended for a reason other than size, nothing is remembered: the next run begins with the
  limit in the settings.

failures/explain.py decides which failures size can explain (`is_of_size`), ledger/runs.py which past runs count as stopped (`sizes`).
input/source.py says how Spark chooses a batch's offsets within this limit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

_SHRINK = 4
_SUCCESSES_TO_GROW = 4
_SUCCESSES_TO_DARE = 16
_MOST_DOUBLINGS = 12
FULL = 0.9
"""A batch with this fraction of its limit is full: Spark divides the limit among the partitions by what each has, and rounds."""


@dataclass(frozen=True)
class PastRun:
    """What a run leaves to the next one."""

    max_events: int
    """The size of its batches when it began."""
    failed_at: int | None
    """The size of its batches, if it ended by a failure that size can explain; None otherwise."""
    stopped: bool
    """Whether it ended on request, or its process ended for a reason other than size: earlier failures then do not count."""


class BatchSize:
    """The size of a run's batches. The main thread owns it."""

    def __init__(self, max_events: int, most: int, ceiling: int | None = None, dares: int = 0) -> None:
        """`most`: the limit in the settings. `ceiling`: where growth stops for now. `dares`: how often raising the ceiling has failed."""
        self.max_events = max_events
        """Limit of a batch in the query that runs, or begins."""
        self._most = most
        self._ceiling = most if ceiling is None else min(ceiling, most)
        self._patience = _SUCCESSES_TO_DARE * 2 ** min(dares, _MOST_DOUBLINGS)
        self._fits = False

    @property
    def failed_at(self) -> int | None:
        """The size, if it may be the cause of a failure; None if a full batch of it was committed."""
        return None if self._fits else self.max_events

    def committed(self, events: int) -> None:
        """Note that a batch of `events` events was committed."""
        self._fits |= events >= FULL * self.max_events

    @property
    def successes_to_grow(self) -> int | None:
        """Number of batches of this size after which it grows; None if it is at the limit in the settings."""
        if self.max_events >= self._most:
            return None
        return _SUCCESSES_TO_GROW if self.max_events < self._ceiling else self._patience

    def grow(self) -> None:
        """Grow: `successes_to_grow` batches have succeeded."""
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
    # The earlier failures, while the size fell from a greater one, tested another ceiling.
    dares = sum(failed[0] < 2 * size <= 4 * failed[0] for size in failed) - 1
    return BatchSize(begin, most, max(begin, failed[0] // 2), dares)
