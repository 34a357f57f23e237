"""Decides what a replay sends: its filters, the batches that they select, and the contents of these batches.

Only batches that every lane has delivered are selected, so a replay never overtakes live publishing.
Rows are counted in short statements, so that vacuum is not held back. reader.py reads them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import psycopg

from db import windows
from db.statements import queries
from service.commands.times import Moment

_REPLAYS = queries("publisher", "replays")

_TARGET_S = 0.5
_MOST_BATCHES = 10_000


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters, all of which a row must match. Batches are inclusive; `since` <= a batch's commit < `until`; None: no such filter."""

    from_batch: int | None = None
    to_batch: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    keys: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is no filter."""
        asked = (self.from_batch, self.to_batch, self.since, self.until, self.keys, self.topics)
        return all(filter_ is None for filter_ in asked)

    def as_json(self) -> dict[str, Any]:
        """Return the filters for `outbox.replay`, with only the number of the keys, which have their own table."""
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("from_batch", "to_batch")
            if getattr(self, name) is not None
        }
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None:
                found[name] = (
                    moment.at.isoformat()
                    if moment.at is not None
                    else f"{moment.age_s:g}s before it was made"
                )
        if self.keys is not None:
            found["keys"] = len(self.keys)
        if self.topics is not None:
            found["topics"] = list(self.topics)
        return found


class ReplayRange(NamedTuple):
    """Batches `first` to `last`, inclusive; none if `first` > `last`. `notes`: which parts of the requested range are left out, and why.

    `holes`: first and last batch of each gap in between: retention has dropped its rows, or the archive does not have it.
    """

    first: int
    last: int
    notes: list[str]
    holes: list[tuple[int, int]]

    @property
    def empty(self) -> bool:
        """Whether the range has no batch."""
        return self.first > self.last


class TopicCount(NamedTuple):
    """The outputs for one topic that are sent."""

    rows: int
    events: int
    bytes: int


@dataclass(slots=True)
class Count:
    """The contents of a replay. `sessions`: the sessions of the rows; `bytes`: the bytes of the values."""

    topics: dict[str, TopicCount] = field(default_factory=dict)
    rows: int = 0
    sessions: int = 0
    events: int = 0
    bytes: int = 0

    def add(self, topic: str, part: TopicCount, rows: int, sessions: int) -> None:
        """Add one topic of one window. `rows`, `sessions`: those that no other topic of the window has counted."""
        before = self.topics.get(topic, TopicCount(0, 0, 0))
        self.topics[topic] = TopicCount(*(old + new for old, new in zip(before, part, strict=True)))
        self.rows += rows
        self.sessions += sessions
        self.events += part.events
        self.bytes += part.bytes


def resolve(connection: psycopg.Connection[Any], filters: Filters) -> ReplayRange:
    """Resolve the filters to batches that every lane has delivered, so that a replay never overtakes live publishing."""
    parameters = _moment("since", filters.since) | _moment("until", filters.until)
    row = connection.execute(_REPLAYS["range"], parameters).fetchone()
    newest, delivered, partitions, since, until = row if row is not None else (0, 0, [], None, None)
    first = max(1, filters.from_batch or 1)
    last = min(newest, filters.to_batch if filters.to_batch is not None else newest)
    if filters.since is not None:
        first = max(first, since if since is not None else newest + 1)
    if filters.until is not None:
        last = min(last, until or 0)
    notes = []
    kept = partitions[0][0] if partitions else 0
    if first < kept and first <= last:
        notes.append(
            f"batches {first:,} to {min(last, kept - 1):,} are left out: retention has dropped their rows"
        )
        first = kept
    if last > delivered and first <= last:
        notes.append(
            f"batches {max(first, delivered + 1):,} to {last:,} are left out: not every lane has delivered them yet, and live "
            "publishing sends them (`publisher status`)"
        )
        last = delivered
    holes = holes_of(partitions, first, last)
    for begin, end in holes:
        notes.append(
            f"batches {begin:,} to {end:,} are left out: retention has dropped their rows, though it kept older ones"
        )
    return ReplayRange(first, last, notes, holes)


def holes_of(partitions: Sequence[Sequence[int]], first: int, last: int) -> list[tuple[int, int]]:
    """Return the batches from `first` to `last` that lie between two partitions. Partitions: first batch and exclusive end, in order."""
    found = []
    for (_, end), (begin, _) in pairwise(partitions):
        missing = (max(first, end), min(last, begin - 1))
        if missing[0] <= missing[1]:
            found.append(missing)
    return found


def count(
    connection: psycopg.Connection[Any],
    batches: ReplayRange,
    filters: Filters,
    tick: Callable[[int], None] = lambda _: None,
) -> Count:
    """Count the rows of the batches that match the filters. `tick` is called with the number of batches counted since its last call."""
    found = Count()
    for first, last in _windows(batches):
        rows = connection.execute(
            _REPLAYS["count"],
            {
                "from_batch": first,
                "to_batch": last,
                "keys": None if filters.keys is None else list(filters.keys),
                "topics": None if filters.topics is None else list(filters.topics),
            },
            # A generic plan could not use the index on the keys.
            prepare=False,
        ).fetchall()
        for topic, *part, new_rows, new_sessions in rows:
            found.add(topic, TopicCount(*part), new_rows, new_sessions)
        tick(last - first + 1)
    return found


def unknown_keys(connection: psycopg.Connection[Any], batches: ReplayRange, filters: Filters) -> list[str]:
    """Return the named session keys that have no row in the batches."""
    if filters.keys is None:
        return []
    unknown = list(filters.keys)
    for window in windows.cut(batches.first, batches.last):
        if unknown:
            rows = connection.execute(
                _REPLAYS["unknown_keys"], window.bounds | {"keys": unknown}, prepare=False
            )
            unknown = [key for (key,) in rows]
    return unknown


def _windows(batches: ReplayRange) -> Iterator[tuple[int, int]]:
    """Cut the range into windows, each of which takes about half a second."""
    first, size = batches.first, 16
    while first <= batches.last:
        last = min(batches.last, first + size - 1)
        began = time.monotonic()
        yield first, last
        took = time.monotonic() - began
        size = min(size * 2, _MOST_BATCHES) if took < _TARGET_S else max(1, size // 2)
        first = last + 1


def _moment(name: str, moment: Moment | None) -> dict[str, Any]:
    return {
        name: None if moment is None else moment.at,
        f"{name}_age_s": None if moment is None else moment.age_s,
    }
