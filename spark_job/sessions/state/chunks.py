"""Chunks: events of open sessions, grouped by session. A chunk never changes."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.events import Events
from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.parsing.schema_id_heads import ids_of
from spark_job.sessions.state.binary import BinaryReader, aligned, texts
from spark_job.sessions.state.open_sessions import OpenSessions

Int = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]


_HAS_IDS, _HAS_TYPES = 1, 2


class Sums(NamedTuple):
    """Checksums of sessions' events, one entry for each session. They do not depend on how a session's events are spread over chunks.

    `checksum` is a sum over the events (see `_mixed`), modulo 2**64. `payload_crc` is the CRC-32 of all payloads, one after the other,
    `id_crc` that of all event ids.
    """

    checksum: Unsigned
    payload_crc: Unsigned
    id_crc: Unsigned

    @classmethod
    def of(cls, sessions: OpenSessions) -> "Sums":
        """Return the sums in the table."""
        return cls(sessions.checksum, sessions.payload_crc, sessions.id_crc)

    @classmethod
    def nothing(cls, count: int) -> "Sums":
        """Return the sums of sessions without events."""
        return cls(*(np.zeros(count, np.uint64) for _ in cls._fields))


@dataclass(frozen=True, eq=False)
class EventChunk:
    """Events in the order of (their session's start, offset)."""

    start: Int
    """The start of each session with events here, ascending."""
    first: Int
    """Session i has the rows [first[i], first[i + 1]). One number more than sessions."""
    events: Events

    def __len__(self) -> int:
        return len(self.events)

    @cached_property
    def schema_ids(self) -> frozenset[int]:
        """The schema ids of the events' values, which must be in Confluent's wire format."""
        return frozenset(ids_of(self.events.payload))

    def sums(self, before: Sums, rows: Int | None = None) -> Sums:
        """Return the sums over earlier events (`before`) and those here.

        `rows`: use only so many first events of each session; None: all.
        """
        if not len(self.start):
            return before
        begin, end = self.first[:-1], self.first[1:] if rows is None else self.first[:-1] + rows
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(self.events), dtype=np.uint64)])
        columns = [self.events.payload, self.events.event_id]
        crcs = [
            crc if column is None else _crcs(column, begin, end, crc)
            for column, crc in zip(columns, before[1:], strict=True)
        ]
        return Sums(before.checksum + (running[end] - running[begin]), *crcs)

    def with_types(self, low: int, high: int, names: Sequence[str]) -> "EventChunk":
        """Return the chunk with `names[kind]` as the type of the untyped events at offsets [low, high)."""
        events = self.events
        untold = (events.offset >= low) & (events.offset < high)
        untold &= events.own_types().is_null().to_numpy(zero_copy_only=False)
        if not untold.any():
            return self
        by_kind = pa.array([name.encode() for name in names], pa.large_binary()).take(pa.array(events.kind))
        types = pc.if_else(pa.array(untold), by_kind, events.own_types())
        return replace(self, events=replace(events, type=types))

    def encoded(self) -> list[bytes | memoryview]:
        """Return the chunk as the cache stores it, one part after the other."""
        events = self.events
        has = _HAS_IDS * (events.event_id is not None) + _HAS_TYPES * (events.type is not None)
        counts = np.array([len(self.start), len(events), has], "<i8")
        parts = [
            counts,
            self.start,
            self.first,
            events.offset,
            events.ts,
            events.kind,
            *texts(events.payload),
        ]
        for column in (events.event_id, events.type):
            parts += [] if column is None else texts(column)
        return aligned(parts)

    @classmethod
    def decoded(cls, data: memoryview) -> "EventChunk":
        """Read what `encoded` returned, without copying payloads. Raises DamagedStateError if `data` cannot be that."""
        reader = BinaryReader(data)
        sessions, rows, has = reader.array("<i8", 3).tolist()
        start, first = reader.array("<i8", sessions), reader.bounds(sessions, rows)
        offset, ts, kind = reader.array("<i8", rows), reader.array("<i8", rows), reader.array("i1", rows)
        payload = reader.texts(rows, pa.large_binary(), checked=False)
        event_id = reader.texts(rows, pa.large_binary()) if has & _HAS_IDS else None
        types = reader.texts(rows, pa.large_binary()) if has & _HAS_TYPES else None
        return cls(start, first, Events(offset, ts, kind, payload, event_id, types))

    @classmethod
    def empty(cls) -> "EventChunk":
        """No events."""
        return cls(np.zeros(0, np.int64), np.zeros(1, np.int64), Events.empty())


def collect(parts: Sequence[EventChunk], starts: Int) -> EventChunk:
    """Return the events of some sessions as one chunk. `parts`: the older chunks first; `starts`: of the sessions, ascending."""
    runs = [_runs(part, starts) for part in parts if len(part.start)]
    if not len(starts) or not runs:
        return EventChunk.empty()
    held = [part for part in parts if len(part.start)]
    owner = np.concatenate([run.owner for run in runs])
    order = np.argsort(owner, kind="stable")
    rows = np.concatenate([run.size for run in runs])[order]
    size = np.bincount(owner[order], weights=rows, minlength=len(starts)).astype(np.int64)
    return EventChunk(
        starts[size > 0], np.concatenate([[0], np.cumsum(size[size > 0])]), _joined(held, runs, order)
    )


class _Runs(NamedTuple):
    """Where the events of some sessions are in a chunk, one entry for each session that is there."""

    owner: Int
    """The session's index among those asked for."""
    begin: Int
    size: Int


def _runs(part: EventChunk, starts: Int) -> _Runs:
    at = np.minimum(np.searchsorted(part.start, starts), len(part.start) - 1)
    found = np.flatnonzero(part.start[at] == starts)
    begin = part.first[at[found]]
    return _Runs(found, begin, part.first[at[found] + 1] - begin)


def _joined(parts: Sequence[EventChunk], runs: Sequence[_Runs], order: Int) -> Events:
    """Return all runs of all parts, in the given order of runs. Each payload is copied once."""
    taken = [ranges(run.begin, run.size) for run in runs]
    size = np.concatenate([run.size for run in runs])
    begin = np.concatenate([[0], np.cumsum(size)[:-1]])
    rows = ranges(begin[order], size[order])

    def numbers(columns: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([column[mine] for column, mine in zip(columns, taken, strict=True)])[rows]

    def texts(columns: list[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
        pieces: list[memoryview] = []
        sizes = []
        for column, run, mine in zip(columns, runs, taken, strict=True):
            bounds, data = views(column)
            low, high = bounds[run.begin].tolist(), bounds[run.begin + run.size].tolist()
            pieces += [data[a:b] for a, b in zip(low, high, strict=True)]
            sizes.append(bounds[mine + 1] - bounds[mine])
        joined_data = b"".join([pieces[at] for at in order.tolist()])
        size = np.concatenate(sizes)[rows]
        ends = np.concatenate([[0], np.cumsum(size)])
        if (size < 0).any() or ends[-1] != len(joined_data):
            raise DamagedStateError("bounds of events are out of order, or beyond the end")
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(joined_data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), buffers)

    def optional(columns: list[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
        nulls = [each.is_null().to_numpy(zero_copy_only=False) for each in columns]
        return pc.if_else(pa.array(numbers(nulls)), None, texts(columns))

    events = [part.events for part in parts]
    has_ids = any(each.event_id is not None for each in events)
    has_types = any(each.type is not None for each in events)
    return Events(
        numbers(each.offset for each in events),
        numbers(each.ts for each in events),
        numbers(each.kind for each in events),
        texts([each.payload for each in events]),
        optional([each.ids() for each in events]) if has_ids else None,
        optional([each.own_types() for each in events]) if has_types else None,
    )


def ranges(begin: Int, size: Int) -> Int:
    """Return the numbers of several ranges, one range after the other."""
    if not len(begin):
        return np.zeros(0, np.int64)
    ends = np.cumsum(size)
    return np.repeat(begin - (ends - size), size) + np.arange(int(ends[-1]))


def _crcs(column: pa.LargeBinaryArray, begin: Int, end: Int, before: Unsigned) -> Unsigned:
    bounds, data = views(column)
    spans = zip(before.tolist(), bounds[begin].tolist(), bounds[end].tolist(), strict=True)
    return np.array([zlib.crc32(data[low:high], crc) for crc, low, high in spans], np.uint64)


def _mixed(events: Events) -> Unsigned:
    """Return a number for each event that depends on its offset, time, kind, size and its event id's size."""
    mixed = events.offset.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= events.ts.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed += events.kind.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
    mixed ^= events.sizes().astype(np.uint64) * np.uint64(0x27D4EB2F165667C5)
    if events.event_id is not None:
        # A missing event id counts as 0, an empty one as 1.
        sizes = np.diff(views(events.event_id)[0]) + 1
        sizes *= events.event_id.is_valid().to_numpy(zero_copy_only=False)
        mixed += sizes.astype(np.uint64) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(29)
    return mixed * np.uint64(0xBF58476D1CE4E5B9)
