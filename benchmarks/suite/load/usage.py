"""CPU and memory of processes by part, and what Postgres wrote."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil
import psycopg

from benchmarks.pipeline import cpu

Parts = Mapping[str, Sequence[int]]
"""{part: processes}; what is below them counts too, and once where it is named as well."""

_WRITTEN = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, pg_database_size(current_database())::float8,
       (SELECT coalesce(sum(sessions), 0)::float8 FROM outbox.batch)
"""


@dataclass(frozen=True)
class Written:
    """What Postgres had written up to a moment: bytes, and the sessions in the ledger."""

    wal_bytes: float
    stored_bytes: float
    sessions: float

    @classmethod
    def now(cls, dsn: str) -> "Written":
        """Ask the outbox at `dsn`."""
        with psycopg.connect(dsn, autocommit=True) as connection:
            row = connection.execute(_WRITTEN).fetchone()
        assert row is not None
        return cls(*row)

    def of_a_session(self, earlier: "Written") -> dict[str, float]:
        """Bytes for each session that was written between."""
        sessions = self.sessions - earlier.sessions
        if not sessions:
            raise ValueError("no session was written between the two moments: too few sessions")
        return {
            "wal_bytes": (self.wal_bytes - earlier.wal_bytes) / sessions,
            "stored_bytes": (self.stored_bytes - earlier.stored_bytes) / sessions,
        }


def roots(pids: Sequence[int]) -> list[int]:
    """Those that are not below another one of them, and that are still there."""
    named, found = set(pids), []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if named.isdisjoint(parent.pid for parent in psutil.Process(pid).parents()):
                found.append(pid)
    return found


def cpu_s(parts: Parts) -> dict[str, float]:
    """Seconds of CPU that each part has used, its dead children included; the JVM of a part with other processes also by itself."""
    found: dict[str, float] = {}
    for part, pids in parts.items():
        used = [cpu.used_by(pid) for pid in roots(pids)]
        found[part] = sum(one.total for one in used)
        if any(one.jvm and one.driver for one in used):
            found[f"{part}_driver"] = sum(one.driver for one in used)
            found[f"{part}_jvm"] = sum(one.jvm for one in used)
            found[f"{part}_workers"] = sum(one.workers for one in used)
    return found


def cpu_us(begin: Mapping[str, float], end: Mapping[str, float], events: float) -> dict[str, float]:
    """Microseconds of CPU for each input event between two moments, by part: seconds for a million events."""
    return {f"cpu_{part}": 1e6 * (used - begin.get(part, 0.0)) / events for part, used in end.items()}


class MemoryPeaks:
    """The most memory of each part, in MB; what processes share counts once."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}

    def look(self, parts: Parts) -> None:
        """Look now."""
        for part, pids in parts.items():
            self.peaks[part] = max(self.peaks.get(part, 0.0), sum(map(memory_mb, roots(pids))))

    def measured(self) -> dict[str, float]:
        """As measures of a round."""
        return {f"memory_{part}": most for part, most in self.peaks.items()}


def memory_mb(pid: int) -> float:
    """Of a process and all below it, in MB; 0 where it is gone."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
    return total / 1e6
