"""How many tasks Spark runs at once on this machine, and how many a batch has.

A task fetches from Kafka, hands records to its Python worker, and waits while that assembles them. So one task for each core leaves the
cores idle for a sixth of the time, and a large batch has two tasks for each core. A small batch has one for each core, because starting a
task costs more than its work; or one task in all, if that hardly delays the batch.
"""

import math
import os
from pathlib import Path

CORES_OPTION = "spark.outbox.cores"
"""Set if Spark has two threads for each core."""

_THREADS_A_CORE = 2
_RECORDS_A_TASK = 20_000
_ALONE_S, _ALONE_PARTITIONS = 0.03, 8
_CGROUP = Path("/sys/fs/cgroup")


def local_threads(cores: int) -> int:
    """Return how many tasks `local[*]` runs at once."""
    return _THREADS_A_CORE * cores


def tasks(records: int, cores: int, threads: int) -> int:
    """Return how many tasks a batch with `records` records has. `threads`: how many Spark runs at once."""
    return threads if records >= _RECORDS_A_TASK * threads else min(cores, threads)


class TaskCount:
    """How many tasks the batches of a run have."""

    def __init__(self, cores: int, threads: int, *, fixed: int = 0, saves: bool = False) -> None:
        """`threads`: how many Spark runs at once. `fixed`: the number in the settings, 0 without one.

        `saves`: CPU matters more than a few milliseconds. Not on a cluster: there each executor has the open sessions of its partitions.
        """
        self._cores, self._threads = cores, threads
        self._fixed, self._saves = fixed, saves
        self._record_s: float | None = None

    def of(self, records: int, partitions: int) -> int:
        """Return the number for a batch with `records` from `partitions`; a task fetches its partitions one after the other."""
        if self._fixed:
            return self._fixed
        if (
            self._saves
            and self._record_s is not None
            and records * self._record_s < _ALONE_S
            and partitions <= _ALONE_PARTITIONS
        ):
            return 1
        return tasks(records, self._cores, self._threads)

    def worked(self, seconds: float, records: int) -> None:
        """Record how long the tasks of a batch have worked, in all."""
        if records:
            self._record_s = seconds / records


def cores(cgroup: Path = _CGROUP) -> int:
    """Return the cores that this process may use: those it may run on, or fewer if its container has a quota of time."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Return the CPU time that the control group grants, in cores (version 2, then 1); None if it sets no limit or cannot be read."""
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
