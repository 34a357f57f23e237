"""Real servers and real services for one measurement; everything is gone at its end."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

import psutil

from devstack.processes.process import ServerProcess, launch
from devstack.stack import Stack
from service.settings import Settings


@dataclass(frozen=True)
class Servers:
    """The servers, and a folder for whatever a measurement keeps."""

    stack: Stack
    folder: Path

    @property
    def bootstrap_servers(self) -> str:
        """Of Kafka."""
        return self.stack.kafka.bootstrap_servers


def launch_publisher(settings: Settings, log: Path, *command: str) -> ServerProcess:
    """Start a real `publisher run`, or another command of it, with these settings."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOX_")}
    environment |= {
        "OUTBOX_POSTGRES__DSN": settings.postgres.dsn.get_secret_value(),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
    }
    for name, value in settings.publisher.model_dump(exclude_unset=True).items():
        environment[f"OUTBOX_PUBLISHER__{name.upper()}"] = str(value)
    arguments = [sys.executable, "-m", "publisher", *(command or ("run",))]
    return launch("publisher", arguments, log=log, environment=environment)


@contextmanager
def publisher_process(settings: Settings, log: Path, *command: str) -> Iterator[ServerProcess]:
    """Run a real `publisher run`, or another command of it, with these settings; SIGTERM at the end."""
    process = launch_publisher(settings, log, *command)
    try:
        yield process
    finally:
        process.terminate(SIGTERM, timeout_s=60)


@contextmanager
def started_servers() -> Iterator[Servers]:
    """Start Postgres (with fsync) and Kafka, empty."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="spark-outbox-bench-")))
        yield Servers(cleanup.enter_context(Stack.local(folder / "stack", heap="1g")), folder)


def cpu_s(process: ServerProcess) -> float:
    """Seconds of CPU, its threads' included."""
    times = psutil.Process(process.identity.pid).cpu_times()
    return times.user + times.system


def peak_mb(process: ServerProcess | None = None) -> float:
    """Most memory that a process had at once, in MB; of this one without."""
    status = Path(f"/proc/{'self' if process is None else process.identity.pid}/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
