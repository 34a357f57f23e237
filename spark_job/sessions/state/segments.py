"""A segment: entries of the table of open sessions that were written at one time, and the starts of those that had ended then.

A segment never changes. A newer segment overrides it: with another entry of the same start, or by naming the start as ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.state.binary import BinaryReader, aligned
from spark_job.sessions.state.digests import entry_hashes, text_hashes
from spark_job.sessions.state.open_sessions import OpenSessions

Int = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]
Places = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Segment:
    """Entries by start, with indexes by key and by time."""

    entries: OpenSessions
    """By start."""
    hashes: Unsigned
    """Two numbers for each entry (digests.entry_hashes)."""
    ended: Int
    """Starts of older entries whose sessions are no longer open, ascending."""
    key_hash: Unsigned
    """The hashes of all entries' keys, ascending."""
    by_key: Places
    """For each key hash, the place of its entry."""
    max_ts: Int
    """The greatest times of all entries, ascending."""
    by_time: Places
    """For each of these times, the place of its entry."""

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def of(cls, entries: OpenSessions, ended: Int) -> "Segment":
        """Return a segment with the entries of a table, which is ordered by start."""
        keys = text_hashes(entries.key)
        return cls._ordered(entries, entry_hashes(entries, keys), keys[:, 0], ended)

    @classmethod
    def merged(cls, parts: "Sequence[tuple[Segment, Int]]", ended: Int) -> "Segment":
        """Return a segment with some entries (by their places) of each of several segments."""
        if not parts:
            return cls.of(OpenSessions.empty(), ended)
        entries = OpenSessions.joined([part.entries.take(places) for part, places in parts])
        order = np.argsort(entries.start, kind="stable")
        hashes = np.concatenate([part.hashes[places] for part, places in parts])
        keys = np.concatenate([part._keys()[places] for part, places in parts])
        return cls._ordered(entries.take(order), hashes[order], keys[order], ended)

    @classmethod
    def _ordered(cls, entries: OpenSessions, hashes: Unsigned, keys: Unsigned, ended: Int) -> "Segment":
        by_key, by_time = np.argsort(keys), np.argsort(entries.max_ts, kind="stable")
        return cls(
            entries,
            hashes,
            ended,
            keys[by_key],
            by_key.astype(np.uint32),
            entries.max_ts[by_time],
            by_time.astype(np.uint32),
        )

    def _keys(self) -> Unsigned:
        """Return the hash of each entry's key."""
        keys = np.empty_like(self.key_hash)
        keys[self.by_key] = self.key_hash
        return keys

    @cached_property
    def remembered(self) -> Int:
        """The places of the tombstones and later parts."""
        return np.flatnonzero(self.entries.is_remembered)

    def places(self, starts: Int) -> Int:
        """Return the places of the entries with these starts; -1 if there is none."""
        if not len(self):
            return np.full(len(starts), -1)
        at = np.minimum(np.searchsorted(self.entries.start, starts), len(self) - 1)
        return np.where(self.entries.start[at] == starts, at, -1)

    def names(self, starts: Int) -> Bool:
        """Return, for each of these starts, whether the segment has an entry of it or names it as ended."""
        return (self.places(starts) >= 0) | among(starts, self.ended)

    def with_keys(self, hashes: Unsigned) -> Int:
        """Return the places of all entries whose keys have one of `hashes`, which ascend; other keys may have such a hash, too."""
        low, high = (np.searchsorted(self.key_hash, hashes, side) for side in ("left", "right"))
        found = np.flatnonzero(high > low)
        if not len(found):
            return np.zeros(0, np.int64)
        size = high[found] - low[found]
        ends = np.cumsum(size)
        rows = np.repeat(low[found] - (ends - size), size) + np.arange(int(ends[-1]))
        return self.by_key[rows].astype(np.int64)

    def encoded(self) -> list[bytes | memoryview]:
        """Return the segment as the cache stores it, one part after the other."""
        count = np.array([len(self.ended)], "<i8")
        found = (self.hashes.ravel(), self.key_hash, self.by_key, self.max_ts, self.by_time)
        return [*aligned([count, self.ended]), *self.entries.plain(), *aligned(found)]

    @classmethod
    def decoded(cls, data: memoryview) -> "Segment":
        """Read what `encoded` returned, without copying numbers. Raises DamagedStateError if `data` cannot be that."""
        reader = BinaryReader(data)
        (count,) = reader.array("<i8", 1).tolist()
        ended = reader.array("<i8", count)
        entries = OpenSessions.mapped(reader)
        size = len(entries)
        return cls(
            entries,
            reader.array("<u8", 2 * size).reshape(-1, 2),
            ended,
            reader.array("<u8", size),
            reader.array("<u4", size),
            reader.array("<i8", size),
            reader.array("<u4", size),
        )

    def check(self) -> None:
        """Raise DamagedStateError if the hashes are not those of the entries: a sum of them would then prove nothing."""
        if not np.array_equal(self.hashes, entry_hashes(self.entries, text_hashes(self.entries.key))):
            raise DamagedStateError("its hashes are not those of its entries")


def among(values: Int, ascending: Int) -> Bool:
    """Return whether each value is among some others, which ascend."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[at] == values)
