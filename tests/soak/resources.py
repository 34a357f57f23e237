"""What the services hold of the machine and of Postgres while the soak runs, and whether it stays the same."""

import statistics
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, fields

import psutil
import psycopg

from tests.support.processes.service import Service

_EVERY_S = 5.0
_LEAST = 120
"""Samples of a run that is long enough to be judged: ten minutes."""


@dataclass(frozen=True)
class Sample:
    """Of the publisher that no fault hits, and of the outbox's server."""

    lanes: float
    """That the publisher holds: each has a producer and a connection of its own."""
    rss_mib: float
    descriptors: float
    threads: float
    locks: float
    """In `pg_locks`, of all sessions."""
    sessions: float
    """Of Postgres: clients that are connected to the outbox."""


_ROOM = Sample(lanes=0, rss_mib=24, descriptors=8, threads=4, locks=150, sessions=16)
"""What a figure may gain between the second and the last quarter, besides a fifth; the last two are of all lanes together."""


@dataclass
class Resources:
    """Samples, by the process that they are of: one that ended by itself was started again, and begins anew."""

    dsn: str
    publisher: Service
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    _next: float = 0.0

    def look(self) -> None:
        """Take a sample when it is time for one; none while Postgres is away."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        with suppress(psycopg.Error, psutil.NoSuchProcess):
            process = psutil.Process(self.publisher.pid)
            lanes, locks, sessions = _counts(self.dsn, process.pid)
            found = Sample(
                lanes,
                process.memory_info().rss / 2**20,
                process.num_fds(),
                process.num_threads(),
                locks,
                sessions,
            )
            self.samples.setdefault(process.pid, []).append(found)

    def longest(self) -> list[Sample]:
        """Of the life that lasted longest."""
        return max(self.samples.values(), key=len, default=[])

    def quarters(self) -> tuple[Sample, Sample] | None:
        """Return the medians of the second quarter, when all is warm, and of the last one, of samples with as many lanes; None where the
        run was too short.
        """
        samples = self.longest()
        quarter = len(samples) // 4
        parts = samples[quarter : 2 * quarter], samples[-quarter:]
        held = [Counter(sample.lanes for sample in part) for part in parts]
        lanes, times = max((held[0] & held[1]).items(), key=lambda item: item[1], default=(0, 0))
        if len(samples) < _LEAST or not times:
            return None
        before, after = ([sample for sample in part if sample.lanes == lanes] for part in parts)
        return _median(before), _median(after)

    def assert_flat(self) -> None:
        """Fail where the last quarter holds more than the second one."""
        found = self.quarters()
        if found is None:
            return
        before, after = found
        grown = [
            f"{each.name}: {getattr(before, each.name):g} in the second quarter, {getattr(after, each.name):g} in the last"
            for each in fields(Sample)
            if getattr(after, each.name) > 1.2 * getattr(before, each.name) + getattr(_ROOM, each.name)
        ]
        assert not grown, f"not flat: {'; '.join(grown)}"


_COUNTS = """
    SELECT (
            SELECT count(*) FROM outbox.lane JOIN outbox.publisher_process ON lease_holder = process_id::text
            WHERE pid = %s AND ended_at IS NULL
        ),
        (SELECT count(*) FROM pg_locks),
        (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend')
"""


def _counts(dsn: str, pid: int) -> tuple[int, int, int]:
    with psycopg.connect(dsn, autocommit=True, connect_timeout=2) as connection:
        ((lanes, locks, sessions),) = connection.execute(_COUNTS, [pid]).fetchall()
    return lanes, locks, sessions


def _median(samples: list[Sample]) -> Sample:
    return Sample(
        *(statistics.median(getattr(sample, each.name) for sample in samples) for each in fields(Sample))
    )


def highest(samples: list[Sample]) -> Sample:
    """Return each figure's highest value."""
    return Sample(*(max(getattr(sample, each.name) for sample in samples) for each in fields(Sample)))
