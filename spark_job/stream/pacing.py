"""How long the job waits between two batches, so that little input costs little.

A batch of ten events costs about as much as one of a thousand: Spark plans it, tasks begin and end, a transaction commits. Without a pause
the next one begins at once, and any input, however little, takes a whole core. So a batch begins no sooner than `JobSettings.period_ms` (of
`[job] latency`) after the previous one, and more events come together. If the job is behind, the next batch begins at once. After a longer
idle time the first two batches begin at once, because the period counts from the end of the last pause.

input/source.py says how Spark chooses a batch's offsets.
"""

import time
from collections.abc import Callable

from spark_job.ledger.batch_size import FULL
from spark_job.monitoring import metrics

_SLICE_S = 0.02


class Pacing:
    """The pause after each batch of a query. Spark's stream thread owns it."""

    def __init__(self, period_ms: int, max_events: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`period_ms`: from one batch's start to the next one's. `max_events`: limit of a batch; a full batch leaves events in Kafka."""
        self._period_s = period_ms / 1_000
        self._full = FULL * max_events
        self._clock = clock
        self._began = self._called = clock()

    def begin(self) -> None:
        """Note that Spark has planned a batch and called the callback."""
        self._called = self._clock()

    def pause(self, events: int, ends: Callable[[], bool]) -> None:
        """Wait until the next batch may begin. `events`: of the computed batch; `ends`: whether the query ends, which ends the wait."""
        computed = self._clock()
        until = computed if events >= self._full else self._began + self._period_s
        while (left := until - self._clock()) > 0 and not ends():
            time.sleep(min(_SLICE_S, left))
        now = self._clock()
        metrics.paced(computed - self._called, waited_s=now - computed, cycle_s=now - self._began)
        self._began = now
