"""How many tasks Spark runs at once on this machine, and how many a batch has.

A task fetches from Kafka, hands records to its Python worker, and waits while that assembles them. So one task for each core leaves the
cores idle for a sixth of the time: a large batch has two. A small one has one, because starting a task costs more than it works.
"""

import math
import os
from pathlib import Path

CORES_OPTION = "spark.outbox.cores"
"""Set where Spark has two threads for each core."""

_THREADS_A_CORE = 2
_RECORDS_A_TASK = 20_000
_CGROUP = Path("/sys/fs/cgroup")


def local_threads(cores: int) -> int:
    """Return how many tasks `local[*]` runs at once."""
    return _THREADS_A_CORE * cores


def tasks(records: int, cores: int, threads: int) -> int:
    """Return how many tasks a batch with so many records has. `threads`: how many Spark runs at once."""
    return threads if records >= _RECORDS_A_TASK * threads else min(cores, threads)


def cores(cgroup: Path = _CGROUP) -> int:
    """Return the cores that this process may use: those it may run on, or fewer where its container has a quota of time."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """The cores' time that the control group grants (version 2, then 1); None where it does not limit it, or nothing says so."""
    try:
        granted, period = (cgroup / "cpu.max").read_text().split()
        return None if granted == "max" else int(granted) / int(period)
    except (OSError, ValueError):
        pass
    try:
        files = (cgroup / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
        limit, period_us = (int(each.read_text()) for each in files)
        return limit / period_us if limit > 0 else None
    except (OSError, ValueError):
        return None
