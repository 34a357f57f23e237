"""What a process keeps: threads, descriptors, files, and in a JVM the objects that its garbage collector does not take."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

_ROW = re.compile(r"\s*\d+:\s+(\d+)\s+\d+\s+(\S+)")


@dataclass(frozen=True)
class Kept:
    """At one moment."""

    threads: int
    descriptors: int

    @classmethod
    def by(cls, process: psutil.Process) -> "Kept":
        return cls(process.num_threads(), process.num_fds())


def live_objects(jvm: psutil.Process) -> Counter[str]:
    """How many objects of each class a JVM still has after it has collected its garbage."""
    command = ["jcmd", str(jvm.pid), "GC.class_histogram"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    found = Counter({row[2]: int(row[1]) for row in map(_ROW.match, shown.splitlines()) if row})
    assert found["java.lang.String"] > 0, shown
    return found


def files_below(folder: Path) -> int:
    return sum(path.is_file() or path.is_socket() for path in folder.rglob("*"))
