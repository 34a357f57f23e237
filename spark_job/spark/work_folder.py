"""The folder of this process: Spark's work files, its sockets, and the checkpoint that each query requires.

No later process reads it, and all of it is removed.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = f"spark-outbox-{os.geteuid()}-"
_LOCK = "in-use"


class WorkFolder:
    """The folder, created on first use. It counts as in use until this process ends, in whatever way."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock: int | None = None

    @property
    def path(self) -> Path:
        """The path; the first access removes the folders that dead processes have left."""
        if self._path is None:
            _remove_abandoned()
            self._path = Path(tempfile.mkdtemp(prefix=PREFIX))
            # Locked under another name first: other processes look for the final name.
            locked = self._path / f".{_LOCK}"
            self._lock = os.open(locked, os.O_CREAT | os.O_WRONLY, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            locked.rename(self._path / _LOCK)
        return self._path

    @contextmanager
    def checkpoint(self) -> Iterator[str]:
        """Yield an empty directory, as a URI that Spark understands as one on this machine."""
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self.path))
        try:
            yield f"file://{folder}"  # not escaped: Spark takes each character as it is
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove it; the next use makes another one."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        self._path = self._lock = None


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            # Anybody may make a folder of this name: open nothing in another user's folder, where the lock may be a pipe for instance.
            if folder.lstat().st_uid != os.geteuid():
                continue
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
