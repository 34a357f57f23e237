"""Real servers and real services for one measurement; everything is gone at its end."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

from db.migrate import upgrade
from db.settings import Settings
from devstack.process import ServerProcess, launch
from devstack.stack import Stack
from devstack.topics import create_topics

INPUT = "bench.in"


@dataclass(frozen=True)
class World:
    """Addresses of the servers and a folder for logs."""

    dsn: str
    bootstrap_servers: str
    folder: Path

    @contextmanager
    def service(self, name: str, settings: Mapping[str, str]) -> Iterator[ServerProcess]:
        """Run `spark-job` or `publisher` with these settings (environment names without OUTBOX_)."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOX_")}
        environment |= {
            "OUTBOX_POSTGRES__DSN": self.dsn,
            "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
        }
        environment |= {f"OUTBOX_{key}": value for key, value in settings.items()}
        command = [sys.executable, "-m", name.replace("-", "_"), "run"]
        process = launch(name, command, log=self.folder / f"{name}.log", environment=environment)
        try:
            yield process
        finally:
            process.terminate(SIGTERM, timeout_s=60)

    def log_tail(self, name: str, lines: int = 20) -> str:
        """The last lines of a service's log."""
        return "\n".join((self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()[-lines:])


@contextmanager
def publisher_process(settings: Settings, log: Path) -> Iterator[ServerProcess]:
    """Run a real `publisher run` with these settings."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOX_")}
    environment |= {
        "OUTBOX_POSTGRES__DSN": settings.postgres.dsn.get_secret_value(),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
    }
    for name, value in settings.publisher.model_dump(exclude_unset=True).items():
        environment[f"OUTBOX_PUBLISHER__{name.upper()}"] = str(value)
    command = [sys.executable, "-m", "publisher", "run"]
    process = launch("publisher", command, log=log, environment=environment)
    try:
        yield process
    finally:
        process.terminate(SIGTERM, timeout_s=60)


@contextmanager
def world(topics: Mapping[str, int]) -> Iterator[World]:
    """Start Postgres (with fsync) and Kafka, make the schema and the topics {name: partitions}."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="spark-outbox-bench-")))
        stack = cleanup.enter_context(Stack.local(folder / "stack", heap="1g"))
        dsn = stack.create_database("outbox")
        upgrade(dsn)
        create_topics(
            stack.kafka.bootstrap_servers, {name: (partitions, {}) for name, partitions in topics.items()}
        )
        yield World(dsn, stack.kafka.bootstrap_servers, folder)
