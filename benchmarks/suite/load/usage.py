"""CPU and memory of processes by part, and what Postgres wrote."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg

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


def started_s(pid: int) -> float:
    """When a process was started, in seconds since 1970, to a hundredth: psutil knows it to the second."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (up_s - ticks / os.sysconf("SC_CLK_TCK"))


def cpu_s(parts: Parts) -> dict[str, float]:
    """Seconds of CPU that each part has used, its dead children included; the JVM of a part with other processes also by itself."""
    found: dict[str, float] = {}
    for part, pids in parts.items():
        used = [_cpu_below(pid) for pid in roots(pids)]
        driver, jvm, workers = (sum(kind) for kind in zip(*used, strict=True)) if used else (0.0, 0.0, 0.0)
        found[part] = driver + jvm + workers
        if any(one.jvm and one.driver for one in used):
            found |= {f"{part}_driver": driver, f"{part}_jvm": jvm, f"{part}_workers": workers}
    return found


class _Cpu(NamedTuple):
    """Seconds of CPU that a process, the JVMs below it and everything else below it have used."""

    driver: float
    jvm: float
    workers: float


def _cpu_below(pid: int) -> _Cpu:
    """Return what a process and all below it have used, those that have ended included."""
    driver = jvm = workers = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            with process.oneshot():
                times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue  # its parent has its times now
        # The children's are those of the dead: the living come by themselves.
        seconds = times.user + times.system + times.children_user + times.children_system
        if process.pid == pid:
            driver += seconds
        elif name == "java":
            jvm += seconds
        else:
            workers += seconds
    return _Cpu(driver, jvm, workers)


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
