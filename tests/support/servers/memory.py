"""A folder in memory for a server whose data nobody needs after the run.

Each test has a database of its own, of some 400 files. Where many come and go, ext4 spends more time on finding a free inode
than Postgres on everything else: two fifths of the CPU of the integration tests.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")
_PREFIX = "spark-outbox-tests-"
_NEEDED_BYTES = 4 << 30


@contextmanager
def folder_in_memory(otherwise: Path, memory: Path = _MEMORY) -> Iterator[Path]:
    """Give a new folder in memory, removed at the end; `otherwise` where there is not enough of it."""
    if not _has_room(memory):
        yield otherwise
        return
    for left in memory.glob(f"{_PREFIX}*"):
        if not _is_alive(left.name.removeprefix(_PREFIX).partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory))
    folder.chmod(0o755)  # Postgres runs as another user where root runs the tests
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room(memory: Path) -> bool:
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        return False
    found = os.statvfs(memory)
    return found.f_bavail * found.f_frsize >= _NEEDED_BYTES


def _is_alive(pid: str) -> bool:
    return pid.isdecimal() and Path("/proc", pid).exists()
