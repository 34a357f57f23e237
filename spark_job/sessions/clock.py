"""The clock that shows silence: the times of a partition's records, between two of them.

A session may end because *another* key's record of its partition, after the session's last event, is much later. So the question is
always about an interval of the log, never about the wall clock or another partition.
A sparse table (maxima of all runs of 1, 2, 4, … records) answers it for all events of a batch at once.
"""

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]

NEVER = np.iinfo(np.int64).min


class Clock:
    """The well-formed new records, in offset order. Places on it are their numbers."""

    def __init__(self, offset: Int, ts: Int) -> None:
        self._offset = offset
        self._maxima = [ts]
        while len(self._maxima[-1]) > (half := 1 << (len(self._maxima) - 1)):
            below = self._maxima[-1]
            self._maxima.append(np.maximum(below[:-half], below[half:]))

    def __len__(self) -> int:
        return len(self._offset)

    def latest(self, low: Int, high: Int) -> Int:
        """The greatest time in each interval [low, high); NEVER where it is empty."""
        out = np.full(len(low), NEVER)
        size = high - low
        level = np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1
        for step in np.unique(level[size > 0]).tolist():
            rows = np.flatnonzero((level == step) & (size > 0))
            maxima = self._maxima[step]
            out[rows] = np.maximum(maxima[low[rows]], maxima[high[rows] - (1 << step)])
        return out

    def first_later(self, low: int, high: int, than: int) -> int:
        """The offset of the first record in [low, high) with a time over `than`; there must be one."""
        while True:
            # Skip the longest run that holds nothing later.
            step = (high - low).bit_length() - 1
            while step > 0 and self._maxima[step][low] > than:
                step -= 1
            if self._maxima[step][low] > than:
                return int(self._offset[low])
            low += 1 << step
