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
from devstack.spark import SparkMaster, SparkWorker
from spark_job.spark.jars import Progress

STATE_FILE = "state.json"


@dataclass(frozen=True)
class RecordedServer:
    """One server as recorded: its process, if it was started, and its loopback port."""

    process: ProcessIdentity | None
    port: int


@dataclass(frozen=True)
class DetachedStack:
    """The servers of one directory, whether they run or not."""

    directory: Path
    postgres: Postgres
    kafka: Kafka
    spark_master: SparkMaster | None
    """None without Spark workers."""
    spark_workers: tuple[SparkWorker, ...]

    @property
    def servers(self) -> tuple[LocalServer, ...]:
        """All, in the order in which they start."""
        spark = () if self.spark_master is None else (self.spark_master, *self.spark_workers)
        return self.postgres, self.kafka, *spark

    def save(self) -> None:
        """Record the processes that run and the ports. The file is replaced as a whole."""
        recorded = {
            each.key: asdict(RecordedServer(each.process.identity if each.is_running() else None, each.port))
            for each in self.servers
        }
        path = self.directory / STATE_FILE
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(recorded, indent=2), encoding="utf-8")
        scratch.replace(path)


def load(
    directory: Path,
    *,
    fast: bool = False,
    heap: str = "512m",
    spark_workers: int = 0,
    progress: Progress | None = None,
) -> DetachedStack:
    """The servers recorded in `directory`, or new ones with the given options where none is recorded.

    `spark_workers`: at least so many. Raises DevstackError when the state file cannot be read.
    """
    directory = directory.resolve()
    recorded = _recorded(directory)

    def life(key: str) -> dict[str, Any]:
        known = recorded.get(key, RecordedServer(None, 0))
        return {
            "data_dir": directory / key,
            "port": known.port,
            "detached": True,
            "running": _running(directory, key, known),
        }

    known_workers = sum(key.startswith("spark-worker-") for key in recorded)
    numbers = range(1, max(spark_workers, known_workers) + 1)
    master = SparkMaster(**life("spark-master")) if numbers else None
    return DetachedStack(
        directory,
        Postgres(fast=fast, **life("postgres")),
        Kafka(fast=fast, heap=heap, progress=progress, **life("kafka")),
        master,
        tuple(
            SparkWorker(master=master, number=number, **life(f"spark-worker-{number}"))
            for number in numbers
            if master is not None
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


def _recorded(directory: Path) -> dict[str, RecordedServer]:
    """What the state file says, by key; empty where there is none."""
    path = directory / STATE_FILE
    if not path.exists():
        return {}
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {
            key: RecordedServer(
                ProcessIdentity(**server["process"]) if server["process"] else None, server["port"]
            )
            for key, server in state.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DevstackError(
            f"{path} is not a state file of devstack ({error}); remove its directory"
        ) from error


def _running(directory: Path, key: str, recorded: RecordedServer) -> ServerProcess | None:
    if recorded.process is None or not recorded.process.is_alive():
        return None
    return ServerProcess(key, recorded.process, directory / key / "server.log")
