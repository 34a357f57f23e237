"""The open sessions of a partition as segments: the cost of a change depends on its size, not on how many sessions are open.

Segments are stacked, the newest on top. An entry is live if no newer segment has an entry of the same start or names it as ended. The
totals of all live entries (their number and the sum of their hashes, for example) are updated with each change. If there are too many
segments, the newest ones are merged, and with them each next older one that is no larger than all merged so far. If more than half of a
segment is superseded, it is merged with all above it. So an entry is copied a few times at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.state.digests import EntrySum, text_hashes
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.segments import Segment, among

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_MOST_SEGMENTS = 10
_MERGED_SEGMENTS = 6
"""Fewest segments that are merged if there are too many, so that the next changes need not merge again."""
_LOOKED_AT = 64
"""Number of entries that the search for a live one reads first. It doubles with each step."""


class Totals(NamedTuple):
    """Totals of entries. Those of disjoint sets can be added and subtracted."""

    hashes: EntrySum = EntrySum()
    events: int = 0
    held_bytes: int = 0
    """Of keys and payloads, tombstones left out (OpenSessions.held_bytes)."""
    remembered: int = 0
    """Tombstones and later parts, which no rebuild finds."""
    remembered_key_bytes: int = 0

    @classmethod
    def of(cls, segment: Segment, places: Int) -> "Totals":
        """Return the totals of some entries of a segment."""
        entries = segment.entries
        remembered = places[entries.is_tombstone[places] | (entries.part[places] > 1)]
        bounds, _ = views(entries.key)
        return cls(
            EntrySum.of(segment.hashes[places]),
            int(entries.rows[places].sum()),
            int(entries.held_bytes[places].sum()),
            len(remembered),
            int((bounds[remembered + 1] - bounds[remembered]).sum()),
        )

    def plus(self, other: "Totals") -> "Totals":
        """Return the totals of both."""
        return Totals(
            self.hashes.plus(other.hashes), *(a + b for a, b in zip(self[1:], other[1:], strict=True))
        )

    def minus(self, other: "Totals") -> "Totals":
        """Return the totals without the other's."""
        return Totals(
            self.hashes.minus(other.hashes), *(a - b for a, b in zip(self[1:], other[1:], strict=True))
        )


NO_ENTRIES = Totals()


class Layer(NamedTuple):
    """A segment in the stack, and the places of its first live entries. None of the numbers ever decreases."""

    segment: Segment
    superseded: int = 0
    """How many of its entries are no longer live."""
    oldest: int = 0
    """Place of the first live entry; the segment's length if none is live."""
    safe: int = 0
    """Place of the first live entry with events."""
    quiet: int = 0
    """Index in `Segment.by_time` of the first live entry."""

    @property
    def live(self) -> int:
        """How many entries are live."""
        return len(self.segment) - self.superseded

    @property
    def weight(self) -> int:
        """The number of entries that a merge copies."""
        return self.live + len(self.segment.ended)


@dataclass(frozen=True, eq=False)
class LiveSessions:
    """All open sessions of a partition."""

    layers: tuple[Layer, ...] = ()
    """The older ones first."""
    totals: Totals = NO_ENTRIES

    @classmethod
    def of(cls, table: OpenSessions) -> "LiveSessions":
        """Return the sessions of a whole table."""
        if not len(table):
            return cls()
        return cls.counted([Segment.of(table, np.zeros(0, np.int64))])

    def __len__(self) -> int:
        return self.totals.hashes.entries

    @cached_property
    def table(self) -> OpenSessions:
        """All sessions, ordered by start. The cost grows with their number: a batch may read it in rare cases only."""
        parts = [layer.segment.entries.take(self._live(number)) for number, layer in enumerate(self.layers)]
        return OpenSessions.by_start(parts)

    @property
    def oldest(self) -> int | None:
        """The least start; None if there is none."""
        return min(
            (int(each.segment.entries.start[each.oldest]) for each in self._with("oldest")), default=None
        )

    @property
    def oldest_with_events(self) -> int | None:
        """The least start of a session that is no tombstone; None if there is none."""
        return min((int(each.segment.entries.start[each.safe]) for each in self._with("safe")), default=None)

    @property
    def quietest(self) -> int | None:
        """The least of the sessions' greatest times; None if no session is open."""
        return min((int(each.segment.max_ts[each.quiet]) for each in self._with("quiet")), default=None)

    def _with(self, pointer: str) -> list[Layer]:
        return [layer for layer in self.layers if getattr(layer, pointer) < len(layer.segment)]

    def with_keys(self, keys: pa.LargeStringArray, quieter_than: int | None = None) -> OpenSessions:
        """Return the sessions of some keys, perhaps of a few others, too; and those whose greatest time is below `quieter_than`."""
        # Each hash is looked up once. Producers can make many keys with one hash: a look-up for each key would return the sessions of all.
        hashes = np.unique(text_hashes(keys)[:, 0])
        parts = []
        for number, layer in enumerate(self.layers):
            places = layer.segment.with_keys(hashes)
            if quieter_than is not None:
                past = int(np.searchsorted(layer.segment.max_ts, quieter_than))
                places = np.concatenate([places, layer.segment.by_time[layer.quiet : past]])
            places = np.unique(places)
            if len(places):
                live = self._is_live(number, layer.segment.entries.start[places])
                parts.append(layer.segment.entries.take(places[live]))
        return OpenSessions.by_start(parts)

    def with_starts(self, starts: Int) -> OpenSessions:
        """Return the sessions with these starts, which must exist."""
        found = self._find(starts)
        if (found.layer < 0).any():
            raise DamagedStateError("an open session is missing")
        return OpenSessions.by_start(
            [
                layer.segment.entries.take(found.place[found.layer == number])
                for number, layer in enumerate(self.layers)
            ]
        )

    def have_events(self, starts: Int) -> Bool:
        """Return whether each start is that of an open session with events."""
        found = self._find(starts)
        have = np.zeros(len(starts), bool)
        for number, layer in enumerate(self.layers):
            mine = found.layer == number
            have[mine] = layer.segment.entries.rows[found.place[mine]] > 0
        return have

    @property
    def remembered(self) -> OpenSessions:
        """Only the tombstones and later parts."""
        parts = []
        for number, layer in enumerate(self.layers) if self.totals.remembered else ():
            places = layer.segment.remembered
            live = self._is_live(number, layer.segment.entries.start[places])
            parts.append(layer.segment.entries.take(places[live]))
        return OpenSessions.by_start(parts)

    def changed(self, ended: Int, entries: OpenSessions) -> "LiveSessions":
        """Return the sessions without those that begin at `ended`, and with `entries` (by start), which may replace older entries."""
        if not len(ended) and not len(entries):
            return self
        named = np.unique(np.concatenate([ended, entries.start]))
        found = self._find(named)
        ended = np.sort(ended[among(ended, named[found.layer >= 0])])
        segment = Segment.of(entries, ended)
        totals = self.totals.plus(Totals.of(segment, np.arange(len(segment))))
        for number, layer in enumerate(self.layers):
            totals = totals.minus(Totals.of(layer.segment, found.place[found.layer == number]))
        if not totals.hashes.entries:
            return LiveSessions()
        gone = np.bincount(found.layer[found.layer >= 0], minlength=len(self.layers)).tolist()
        layers = [
            layer._replace(superseded=layer.superseded + more)
            for layer, more in zip(self.layers, gone, strict=True)
        ]
        return LiveSessions((*layers, Layer(segment)), totals)._settled(named)

    @classmethod
    def counted(cls, segments: Sequence[Segment]) -> "LiveSessions":
        """Return the sessions of some segments, the older ones first. Reads every entry; raises DamagedStateError for wrong hashes."""
        for segment in segments:
            segment.check()
        plain = cls(tuple(map(Layer, segments)))
        layers, totals = [], Totals()
        for number, segment in enumerate(segments):
            live = plain._live(number)
            totals = totals.plus(Totals.of(segment, live))
            layers.append(Layer(segment, len(segment) - len(live)))
        counted = cls(tuple(layers), totals)
        return cls(tuple(counted._from_the_first(at) for at in range(len(layers))), totals)

    def _settled(self, changed: Int) -> "LiveSessions":
        """Merge if necessary, and find the first live entries again. `changed`: starts that the newest segment names."""
        begin = self._merged_from()
        if begin < len(self.layers) - 1:
            merged = LiveSessions((*self.layers[:begin], Layer(self._merged(begin))), self.totals)
            return merged._settled(changed)
        older = [self._moved_on(number, changed) for number in range(len(self.layers) - 1)]
        return LiveSessions((*older, self._from_the_first(len(older))), self.totals)

    def _merged_from(self) -> int:
        """Return the first layer to merge; the last one if none is to be merged."""
        begin = len(self.layers) - 1
        if begin >= _MOST_SEGMENTS:
            begin -= _MERGED_SEGMENTS - 1
            size = sum(layer.weight for layer in self.layers[begin:])
            while begin and self.layers[begin - 1].weight <= size:
                begin -= 1
                size += self.layers[begin].weight
        halves = (at for at, layer in enumerate(self.layers) if 2 * layer.superseded > len(layer.segment))
        return min([begin, *halves])

    def _merged(self, begin: int) -> Segment:
        """Return one segment made of those of the layers from `begin` on."""
        merging = range(begin, len(self.layers))
        ended = np.unique(np.concatenate([self.layers[at].segment.ended for at in merging]))
        older = [layer.segment.places(ended) >= 0 for layer in self.layers[:begin]]
        ended = ended[np.any(older, axis=0)] if older else ended[:0]
        with_live = [at for at in merging if self.layers[at].live]
        if with_live == [merging[-1]]:
            return replace(self.layers[-1].segment, ended=ended)
        return Segment.merged([(self.layers[at].segment, self._live(at)) for at in with_live], ended)

    def _moved_on(self, number: int, changed: Int) -> Layer:
        """Return the layer with the places of its first live entries. `changed`: starts that may no longer be live in it."""
        layer = self.layers[number]
        entries, count = layer.segment.entries, len(layer.segment)
        firsts = [layer.oldest, layer.safe, layer.quiet]
        at = [min(first, count - 1) for first in firsts]
        if not count or not among(entries.start[[*at[:2], layer.segment.by_time[at[2]]]], changed).any():
            return layer
        return self._from_the_first(number)

    def _from_the_first(self, number: int) -> Layer:
        """Return the layer with the places of its first live entries; the search begins at the former places."""
        layer = self.layers[number]
        return layer._replace(
            oldest=self._first_live(number, layer.oldest),
            safe=self._first_live(number, layer.safe, with_events=True),
            quiet=self._first_live(number, layer.quiet, layer.segment.by_time),
        )

    def _first_live(
        self, number: int, at: int, order: npt.NDArray[np.uint32] | None = None, *, with_events: bool = False
    ) -> int:
        entries, step = self.layers[number].segment.entries, _LOOKED_AT
        while at < len(entries):
            places: npt.NDArray[np.int64 | np.uint32] = np.arange(at, min(at + step, len(entries)))
            places = places if order is None else order[places]
            wanted = self._is_live(number, entries.start[places])
            if with_events:
                wanted &= entries.rows[places] > 0
            if wanted.any():
                return at + int(np.argmax(wanted))
            at, step = at + len(places), 2 * step
        return at

    def _is_live(self, number: int, starts: Int) -> Bool:
        """Return whether each of these entries of a layer is live: no newer layer has an entry of its start, or names it as ended."""
        live = np.ones(len(starts), bool)
        for layer in self.layers[number + 1 :] if len(starts) else ():
            live &= ~layer.segment.names(starts)
        return live

    def _live(self, number: int) -> Int:
        """Return the places of all live entries of a layer."""
        segment = self.layers[number].segment
        live = np.ones(len(segment), bool)
        for layer in self.layers[number + 1 :]:
            for starts in (layer.segment.entries.start, layer.segment.ended):
                places = segment.places(starts)
                live[places[places >= 0]] = False
        return np.flatnonzero(live)

    def _find(self, starts: Int) -> "_Found":
        layer, place = np.full(len(starts), -1), np.zeros(len(starts), np.int64)
        left = np.arange(len(starts))
        for number in reversed(range(len(self.layers))):
            segment = self.layers[number].segment
            places = segment.places(starts[left])
            here = places >= 0
            layer[left[here]], place[left[here]] = number, places[here]
            left = left[~here & ~among(starts[left], segment.ended)]
            if not len(left):
                break
        return _Found(layer, place)


class _Found(NamedTuple):
    """Where entries are."""

    layer: Int
    """-1 if the entry is not live."""
    place: Int
