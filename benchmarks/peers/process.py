"""A contender that is one process with one part; most peers are."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

import psutil

from devstack.processes.errors import tail
from devstack.processes.process import ServerProcess, launch

_END_S = 60.0


def tree(pid: int) -> list[int]:
    """The process and all below it; nothing where it is gone."""
    try:
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


class SingleProcess:
    """The one process of a contender, started again by the same command; a RunningContender."""

    def __init__(
        self,
        part: str,
        command: Callable[[], Sequence[str]],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` is asked at each start: it may look for what an earlier life left. `environment` is added to this process's own."""
        self.part = part
        self.log = log
        self._command = command
        self._environment = os.environ | (environment or {})
        self._process: ServerProcess | None = None

    def pids(self) -> Mapping[str, Sequence[int]]:
        """The process and all below it, as its part."""
        return {self.part: tree(self._process.identity.pid) if self._process else []}

    def check_alive(self) -> None:
        """Raise RuntimeError with the end of the log where the process has ended."""
        if self._process is None or not self._process.is_alive():
            raise RuntimeError(f"{self.part} ended; {tail(self.log)}")

    def kill(self, part: str) -> float:
        """SIGKILL; return the moment, seconds since 1970."""
        assert part == self.part
        assert self._process is not None
        moment = time.time()
        self._process.kill()
        return moment

    def start(self, part: str) -> None:
        """Start it, for the first time or again."""
        assert part == self.part
        self._process = launch(self.part, self._command(), log=self.log, environment=self._environment)

    def close(self) -> None:
        """SIGTERM, and SIGKILL where that does not end it."""
        if self._process is not None:
            self._process.terminate(SIGTERM, timeout_s=_END_S)


@contextmanager
def started(process: SingleProcess) -> Iterator[SingleProcess]:
    """Run it as long as the block lasts."""
    process.start(process.part)
    try:
        yield process
    finally:
        process.close()
