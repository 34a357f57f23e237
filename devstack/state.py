"""What `devstack up` records in its directory, for `down` and `status` to find the same processes."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from devstack.kafka import Kafka
from devstack.postgres import Postgres
from devstack.processes.errors import DevstackError
from devstack.processes.process import ProcessIdentity, ServerProcess
from devstack.processes.server import LocalServer
from spark_job.spark.jars import Progress

STATE_FILE = "state.json"


@dataclass(frozen=True)
class RecordedServer:
    """One server as recorded: its process, if it was started, and its loopback port."""

    process: ProcessIdentity | None
    port: int


@dataclass(frozen=True)
class DetachedStack:
    """The two servers of one directory, whether they run or not."""

    directory: Path
    postgres: Postgres
    kafka: Kafka

    @property
    def servers(self) -> tuple[LocalServer, LocalServer]:
        """Both, in the order in which they start."""
        return self.postgres, self.kafka

    def save(self) -> None:
        """Record the processes that run and the ports. The file is replaced as a whole."""
        recorded = {
            each.name.lower(): asdict(
                RecordedServer(each.process.identity if each.is_running() else None, each.port)
            )
            for each in self.servers
        }
        path = self.directory / STATE_FILE
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(recorded, indent=2), encoding="utf-8")
        scratch.replace(path)


def load(
    directory: Path, *, fast: bool = False, heap: str = "512m", progress: Progress | None = None
) -> DetachedStack:
    """The servers recorded in `directory`, or new ones with the given options where none is recorded.

    Raises DevstackError when the state file cannot be read.
    """
    directory = directory.resolve()
    postgres = _recorded(directory, Postgres.name)
    kafka = _recorded(directory, Kafka.name)
    return DetachedStack(
        directory,
        Postgres(
            directory / "postgres",
            fast=fast,
            port=postgres.port if postgres else 0,
            detached=True,
            running=_running(directory, Postgres.name, postgres),
        ),
        Kafka(
            directory / "kafka",
            heap=heap,
            port=kafka.port if kafka else 0,
            detached=True,
            running=_running(directory, Kafka.name, kafka),
            progress=progress,
        ),
    )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory, created if needed, against another `devstack` command; waits for it."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # `devstack down` may have deleted the directory while we waited for it.
            if directory.exists() and os.fstat(handle).st_ino == directory.stat().st_ino:
                yield
                return
        finally:
            os.close(handle)


def _recorded(directory: Path, name: str) -> RecordedServer | None:
    path = directory / STATE_FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        server = state.get(name.lower())
        if server is None:
            return None
        process = server["process"]
        return RecordedServer(ProcessIdentity(**process) if process else None, server["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise DevstackError(
            f"{path} is not a state file of devstack ({error}); remove its directory"
        ) from error


def _running(directory: Path, name: str, recorded: RecordedServer | None) -> ServerProcess | None:
    if recorded is None or recorded.process is None or not recorded.process.is_alive():
        return None
    return ServerProcess(name, recorded.process, directory / name.lower() / "server.log")
