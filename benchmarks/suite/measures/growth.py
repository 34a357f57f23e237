"""What an event costs as things grow: open sessions (of a task alone, all active or a thousand of them, and of the whole path), events of a
session, bytes of an event, partitions, work of the transform. Ours.
"""

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from benchmarks.peers.ours import Ours
from benchmarks.suite.load.workload import COMPLETENESS, OPEN_SESSIONS, Bench
from benchmarks.suite.measures import open_sessions, throughput

TITLE = "What an event costs as things grow"
LABELS = {
    "cpu": "CPU of an input event, us",
    "cpu_session": "CPU of a session, us",
    "warm": "sessions/s, warm",
    "memory": "most memory, MB",
    "memory_event": "most memory by events of the largest batch, bytes",
    **COMPLETENESS,
}
OPEN, EVENTS, BYTES, PARTITIONS, TRANSFORM = "open sessions", "events", "bytes", "partitions", "transform ms"
OPEN_IN_PATH = "open sessions, whole path"
_ALONE = {OPEN: None, "open sessions, 1,000 of them active": 1_000}
"""Kinds of points that measure a task alone: how many of the open sessions get events, None for all."""
_BATCH = 500_000
"""The default of `[job] max_events_per_batch`."""
_MOST_EVENTS = 600_000
_BATCHES = 8
_LEAST_SESSIONS = 30
_OPEN_S = {1_000_000: 90.0}
_POINT_S = 45.0
_OPEN_IN_PATH_S = 300.0
_TRANSFORMS = {"0": "twenty", "1": "twenty_in_1_ms", "10": "twenty_in_10_ms"}


@dataclass(frozen=True)
class Point:
    """The whole path with one thing at one size; else 102 events of 150 bytes, 4 partitions, a transform that costs nothing."""

    name: str
    sessions: int
    entries: int = 100
    bytes_per_event: int = 150
    partitions: int = 4
    max_events: int = _MOST_EVENTS
    transform: str = "0"
    open_sessions: int = OPEN_SESSIONS
    warm_until: float = 1.0
    """Share of the sessions. Two thirds: as many are open all the time, and none were read that have not ended then."""


@dataclass(frozen=True)
class Sizes:
    """Which points there are. A factor makes all backlogs smaller."""

    open_sessions: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    factor: float = 1.0
    points: tuple[Point, ...] = field(
        default=(
            *(
                Point(f"{OPEN_IN_PATH}: {number}", 300_000, open_sessions=number, warm_until=2 / 3)
                for number in (1_000, 10_000, 100_000)
            ),
            Point(f"{EVENTS}: 10", 40_000, entries=8),
            Point(f"{EVENTS}: 102", 12_000),
            Point(f"{EVENTS}: 1000", 1_200, entries=998),
            Point(f"{BYTES}: 100", 12_000, bytes_per_event=100),
            Point(f"{BYTES}: 1000", 6_000, bytes_per_event=1_000, max_events=150_000),
            Point(f"{BYTES}: 10000", 1_200, bytes_per_event=10_000, max_events=20_000),
            Point(f"{BYTES}: 100000", 120, bytes_per_event=100_000, max_events=2_000),
            Point(f"{PARTITIONS}: 1", 12_000, partitions=1),
            Point(f"{PARTITIONS}: 10", 12_000, partitions=10),
            Point(f"{PARTITIONS}: 100", 12_000, partitions=100),
            Point(f"{PARTITIONS}: 500", 12_000, partitions=500),
            Point(f"{TRANSFORM}: 1", 6_000, transform="1"),
            Point(f"{TRANSFORM}: 10", 3_000, transform="10"),
        )
    )

    def names(self) -> list[str]:
        """Of all points, in order."""
        alone = [f"{kind}: {number}" for kind in _ALONE for number in self.open_sessions]
        return [*alone, *(one.name for one in self.points)]


def backlog(point: Point, factor: float) -> int:
    """Return the sessions of a point's backlog."""
    return max(_LEAST_SESSIONS, int(point.sessions * factor))


def largest_batch(point: Point, factor: float) -> int:
    """Return the events of a batch: several make up the backlog, however small it is, so that some come when the job is warm."""
    events = backlog(point, factor) * (point.entries + 2)
    return min(point.max_events, events // _BATCHES)


def measure_point(bench: Bench, point: Point, factor: float = 1.0) -> dict[str, float]:
    """Run a backlog of that kind through the whole path."""
    settings = {
        "JOB__MAX_EVENTS_PER_BATCH": str(largest_batch(point, factor)),
        "TRANSFORM__FUNCTION": f"benchmarks.transforms:{_TRANSFORMS[point.transform]}",
    }
    work = bench.preloaded(
        backlog(point, factor),
        point.partitions,
        point.entries,
        point.bytes_per_event,
        max(1, int(point.open_sessions * factor)),
    )
    found = throughput.measure(bench, Ours(settings), work, point.warm_until)
    events = work.entries + 2
    largest = largest_batch(point, factor)
    return {
        "cpu": found["cpu"],
        "cpu_session": found["cpu"] * events,
        "warm": found["warm"],
        "memory": found["memory"],
        "memory_event": 1e6 * found["memory"] / largest,
        **{name: found[name] for name in COMPLETENESS},
    }


def measure_open(sessions: int, batches: int = 4, *, active: int | None = None) -> dict[str, float]:
    """Measure a task with so many sessions open, in a process of its own: see `open_sessions`. `active`: that get events; None: all."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_measure_open, sessions, batches, active).result()


def _measure_open(sessions: int, batches: int, active: int | None) -> dict[str, float]:
    cpu = open_sessions.event_cpu_us(sessions, _BATCH, batches, active)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {
        "cpu": cpu,
        "cpu_session": cpu * open_sessions.EVENTS,
        "memory": memory_mb,
        "memory_event": 1e6 * memory_mb / _BATCH,
    }


def measure(bench: Bench, sizes: Sizes, name: str) -> dict[str, float]:
    """Measure the point of this name."""
    kind, _, size = name.partition(": ")
    if kind in _ALONE:
        return measure_open(int(size), active=_ALONE[kind])
    return measure_point(bench, next(one for one in sizes.points if one.name == name), sizes.factor)


def expected_s(name: str) -> float:
    """Return how long a point will take, its start included."""
    kind, _, size = name.partition(": ")
    if kind in _ALONE:
        return _OPEN_S.get(int(size), 12.0)
    return _OPEN_IN_PATH_S if kind == OPEN_IN_PATH else _POINT_S
