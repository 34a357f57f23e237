"""The clock that times a session out while its own key is silent: the times of the partition's other records.

A session times out if *other* keys' records of its partition, after the session's last event, are much later. The clock therefore reads an
interval of the log, never the wall clock or another partition. No single key can move it: a record's time counts only up to the time of
the newest earlier record of a different key, unless the broker has set it (docs/decisions/0032). Since rules 3, times in fields of events
are never the broker's. A clock record has a key of its own, which no other record has (docs/decisions/0047).
Sparse tables (maxima of all runs of 1, 2, 4, … records) hold the latest time of every interval, for all events of a batch at once.
event_rules.py decides whether a session ends (`EventJudge._end_if_silent`), and closes or dead-letters it (`_time_out`). anomalies.py only
selects the keys.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min
_HASHED = "\0\0"
"""The prefix of a hashed key. No key of a session or of a clock record begins with it."""


class Ticks(NamedTuple):
    """The times that some records state, in offset order."""

    offset: Int
    ts: Int
    code: Int
    """The code of each record's key."""
    by_broker: Bool | None
    """Whether the broker has set each record's time; None: of no record."""

    def among(self, other: "Ticks") -> "tuple[Ticks, Int]":
        """Return both merged, and the places of this one's ticks among them. No code may occur in both."""
        order = np.argsort(np.concatenate([self.offset, other.offset]))
        pairs = ((self.offset, other.offset), (self.ts, other.ts), (self.code, other.code))
        offset, ts, code = (np.concatenate(pair)[order] for pair in pairs)
        flags = [np.zeros(len(of.ts), bool) if of.by_broker is None else of.by_broker for of in (self, other)]
        return Ticks(offset, ts, code, np.concatenate(flags)[order]), np.argsort(order)[: len(self.offset)]


def clock_record_key(offset: int) -> str:
    """Return the key of a clock record. No other record has it: sessions' keys have no NUL."""
    return f"\0{offset}"


def hashed_key(key: str, offset: int) -> str:
    """Return a hash of the key of the record at an offset, by which to recognise the same key. A hashed key is returned unchanged.

    It depends on the input alone, so a rebuild gets the same hash, also in a fork, which has another outbox uuid.
    """
    if key.startswith(_HASHED):
        return key
    salt = offset.to_bytes(8, "little", signed=True)
    return _HASHED + blake2b(key.encode(), digest_size=16, salt=salt).hexdigest()


@dataclass(frozen=True)
class LastRecords:
    """What the clock needs of the records before a batch."""

    key_hash: str
    """Hash of the key (`hashed_key`) of the last record that states a time: a well-formed record or a clock record. An erasure could not
    remove the key itself from a position."""
    offset: int
    ts: int
    other_offset: int = -1
    """Offset of the newest record with a different key; -1 if there is none or it is not needed."""
    other_ts: int = NEVER

    def other_than(self, key: str) -> tuple[int, int]:
        """Return (offset, time) of the newest record with another key."""
        is_same = hashed_key(key, self.offset) == self.key_hash
        return (self.other_offset, self.other_ts) if is_same else (self.offset, self.ts)

    def since(self, start: int) -> "LastRecords | None":
        """Return what the clock needs for sessions and tombstones that begin at or above `start`."""
        if self.offset < start:
            return None
        if 0 <= self.other_offset < start:
            return LastRecords(self.key_hash, self.offset, self.ts)
        return self


class Clock:
    """The well-formed new records and the clock records, in offset order. A place on it is a record's index in this order."""

    def __init__(
        self,
        offset: Int,
        ts: Int,
        code: Int,
        *,
        by_broker: Bool | None = None,
        before: tuple[int, int] = (-1, NEVER),
        alone: bool = False,
    ) -> None:
        """`code`: of each record's key. `by_broker`: whether the broker has set its time. `before`: (offset, time) of the newest earlier
        record whose key is not the first one's. `alone`: a single record shows silence, as by rules 1.
        """
        self._offset, self._ts, self._before = offset, ts, before
        self._by_broker = np.ones(len(ts), bool) if alone else by_broker
        self._code = code

    def __len__(self) -> int:
        return len(self._offset)

    @cached_property
    def _runs(self) -> tuple[Int, Int]:
        """For each place, the begin and end of its run of records with one key. The ends have one more, for the place behind the last."""
        changes = np.flatnonzero(self._code[1:] != self._code[:-1]) + 1
        begin = np.concatenate([np.zeros(1, np.int64), changes])
        size = np.diff(np.append(begin, len(self)))
        return np.repeat(begin, size), np.append(np.repeat(begin + size, size), len(self))

    @cached_property
    def _any(self) -> "_Maxima":
        return _Maxima(self._ts)

    @cached_property
    def _agreed(self) -> "_Maxima":
        """For each record, the lesser of its own time and that of the newest earlier record of another key."""
        other = self._runs[0] - 1
        return _Maxima(np.minimum(self._ts, np.where(other < 0, self._before[1], self._ts[other])))

    @cached_property
    def _certain(self) -> "_Maxima | None":
        if self._by_broker is None or not self._by_broker.any():
            return None
        return self._any if self._by_broker.all() else _Maxima(np.where(self._by_broker, self._ts, NEVER))

    def latest(self, low: Int, high: Int) -> Int:
        """Return the greatest time in each interval [low, high); NEVER if it is empty."""
        return self._any.latest(low, high)

    def latest_agreed(self, low: Int, high: Int, last: Int) -> Int:
        """Return the latest time that the records of each interval agree on; NEVER if there is none.

        `last`: offset of the session's last event, after which the interval begins.
        """
        certain = self._certain
        if certain is self._any:
            return certain.latest(low, high)
        begin = np.minimum(self._agreed_from(low, last), high)
        found = self._agreed.latest(begin, high)
        return found if certain is None else np.maximum(found, certain.latest(low, high))

    def _agreed_from(self, low: Int, last: Int) -> Int:
        """Move `low` behind its run of records with one key, unless an earlier record of another key follows the session's last event."""
        return np.where((low == 0) & (self._before[0] > last), low, self._runs[1][low])

    def first_agreed(self, low: int, high: int, last: int, than: int) -> int | None:
        """Return the offset of the first record in [low, high) by which the records agree on a time over `than`.

        `last`: see `latest_agreed`.
        """
        certain = self._certain
        begin = min(int(self._agreed_from(np.array([low]), np.array([last]))[0]), high)
        found = [self._agreed.first_later(begin, high, than)]
        found += [] if certain is None else [certain.first_later(low, high, than)]
        place = min((place for place in found if place is not None), default=None)
        return None if place is None else int(self._offset[place])

    def last_records(self, key: str) -> LastRecords:
        """Return what the next batch's clock needs. `key`: of the last record."""
        others = np.flatnonzero(self._code != self._code[-1])
        other = (int(self._offset[others[-1]]), int(self._ts[others[-1]])) if len(others) else self._before
        offset = int(self._offset[-1])
        return LastRecords(hashed_key(key, offset), offset, int(self._ts[-1]), *other)


class _Maxima:
    """Maxima of all runs of 1, 2, 4, … numbers."""

    def __init__(self, numbers: Int) -> None:
        self._of = [numbers]
        while len(self._of[-1]) > (half := 1 << (len(self._of) - 1)):
            below = self._of[-1]
            self._of.append(np.maximum(below[:-half], below[half:]))

    def latest(self, low: Int, high: Int) -> Int:
        out = np.full(len(low), NEVER)
        size = high - low
        level = np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1
        for step in np.unique(level[size > 0]).tolist():
            rows = np.flatnonzero((level == step) & (size > 0))
            maxima = self._of[step]
            out[rows] = np.maximum(maxima[low[rows]], maxima[high[rows] - (1 << step)])
        return out

    def first_later(self, low: int, high: int, than: int) -> int | None:
        while low < high:
            # Skip the longest run that contains nothing later.
            step = (high - low).bit_length() - 1
            while step > 0 and self._of[step][low] > than:
                step -= 1
            if self._of[step][low] > than:
                return low
            low += 1 << step
        return None
