"""What a process keeps: threads, descriptors, files."""

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Kept:
    """At one moment."""

    threads: int
    descriptors: int

    @classmethod
    def by(cls, process: psutil.Process) -> "Kept":
        return cls(process.num_threads(), process.num_fds())


def files_below(folder: Path) -> int:
    return sum(path.is_file() or path.is_socket() for path in folder.rglob("*"))
