"""What a job's process and its JVM hold at one moment, after both have collected their garbage."""

import gc
import json
import os
import re
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Self

import psutil
from pyspark.sql import SparkSession

_ROUNDS = 5
_PAUSE_S = 0.3
# Pools of up to 128 threads that end after a minute without work: garbage collections give them some.
_POOLED = re.compile(r"block-manager-(storage-async|ask)-thread-pool-\d+")


@dataclass(frozen=True)
class Held:
    """Counts, but for the last two figures."""

    driver_threads: int
    driver_descriptors: int
    driver_objects: int
    """Which Python's garbage collector tracks."""
    jvm_threads: int
    jvm_descriptors: int
    jvm_paths: int
    """Files that the JVM deletes when it ends (java.io.DeleteOnExitHook)."""
    files: int
    """Below the folder of all of the job's files, but those of open sessions that states share: ten at most of each state."""
    processes: int
    """The JVM, and the Python workers."""
    driver_rss_mib: int
    jvm_heap_kib: int

    @classmethod
    def now(cls, spark: SparkSession, folder: Path) -> Self:
        """Return the least that is held in some seconds: what has ended goes within them. `folder`: of all of the job's files."""
        virtual_machine: Any = spark.sparkContext._jvm
        rounds = []
        for _ in range(_ROUNDS):
            gc.collect()
            virtual_machine.java.lang.System.gc()
            time.sleep(_PAUSE_S)
            rounds.append(cls._at_once(spark, folder))
        return cls(*map(min, zip(*map(astuple, rounds), strict=True)))

    @classmethod
    def _at_once(cls, spark: SparkSession, folder: Path) -> Self:
        virtual_machine: Any = spark.sparkContext._jvm
        driver = psutil.Process()
        children = driver.children(recursive=True)
        java = psutil.Process(virtual_machine.java.lang.ProcessHandle.current().pid())
        runtime = virtual_machine.java.lang.Runtime.getRuntime()
        threads = [
            thread.getName() for thread in virtual_machine.java.lang.Thread.getAllStackTraces().keySet()
        ]
        paths = virtual_machine.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
        paths.setAccessible(True)
        return cls(
            driver_threads=driver.num_threads(),
            driver_descriptors=driver.num_fds(),
            driver_objects=len(gc.get_objects()),
            jvm_threads=sum(_POOLED.fullmatch(name) is None for name in threads),
            jvm_descriptors=java.num_fds(),
            jvm_paths=paths.get(None).size(),
            files=sum(not name.endswith(".segment") for _, _, names in os.walk(folder) for name in names),
            processes=len(children),
            driver_rss_mib=driver.memory_info().rss >> 20,
            jvm_heap_kib=(runtime.totalMemory() - runtime.freeMemory()) >> 10,
        )


ROOM = Held(
    driver_threads=3,
    driver_descriptors=4,
    driver_objects=1_500,
    jvm_threads=6,
    jvm_descriptors=8,
    jvm_paths=2,
    files=8,
    processes=3,
    driver_rss_mib=16,
    jvm_heap_kib=3_000,
)
"""What a figure may gain by caches that are still filling, and by threads and workers that come and go."""


def measurements(output: str) -> dict[str, Held]:
    """Return what `tests.support.held.job` has printed, by what it was measured after."""
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{"after": ')]
    return {each.pop("after"): Held(**each) for each in found}


def grown(before: Held, after: Held) -> list[str]:
    """Return the figures that have gained more than ROOM."""
    return [
        f"{each.name}: {getattr(before, each.name)}, then {getattr(after, each.name)}"
        for each in fields(Held)
        if getattr(after, each.name) > getattr(before, each.name) + getattr(ROOM, each.name)
    ]
