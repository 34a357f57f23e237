"""CPU of a job's processes: the driver, its JVM, and Spark's Python workers."""

from typing import NamedTuple

import psutil


class Cpu(NamedTuple):
    """Seconds of CPU that a job has used."""

    driver: float
    jvm: float
    workers: float

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(*(now - then for now, then in zip(self, earlier, strict=True)))

    def plus(self, other: "Cpu") -> "Cpu":
        """The sum."""
        return Cpu(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def total(self) -> float:
        """Of all three."""
        return sum(self)


NOTHING = Cpu(0.0, 0.0, 0.0)


def used_by(pid: int) -> Cpu:
    """Return what the job's driver and all processes under it have used, those that have ended included."""
    root = psutil.Process(pid)
    total = NOTHING
    for process in (root, *root.children(recursive=True)):
        try:
            with process.oneshot():
                times, name = process.cpu_times(), process.name()
        except psutil.NoSuchProcess:
            continue  # its parent has its times now
        # The children's are those of the dead: the living come by themselves.
        seconds = times.user + times.system + times.children_user + times.children_system
        if process.pid == pid:
            total = total.plus(Cpu(seconds, 0.0, 0.0))
        elif name == "java":
            total = total.plus(Cpu(0.0, seconds, 0.0))
        else:
            total = total.plus(Cpu(0.0, 0.0, seconds))
    return total
