"""A job and a publisher of one checkout, on an outbox of their own."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM
from typing import Any
from uuid import uuid4

import psycopg

from benchmarks.pipeline import cpu
from benchmarks.pipeline.checkout import Checkout
from benchmarks.pipeline.traffic import wait_for
from benchmarks.support.servers import Servers
from devstack.processes.process import ServerProcess, launch

_EVENTS = "SELECT coalesce(sum(input_events), 0)::bigint FROM outbox.batch"
_COMMITS = "SELECT created_at FROM outbox.batch WHERE created_at BETWEEN %s AND %s ORDER BY batch_id"
_HOLDERS = "SELECT count(DISTINCT lease_holder) FROM outbox.lane WHERE lease_until > now()"
_TAIL = 40


class Services:
    """They run while `running` lasts; the job may be killed and started again meanwhile."""

    def __init__(self, checkout: Checkout, environment: Mapping[str, str], dsn: str, folder: Path) -> None:
        """`folder`: for logs and what the job keeps on disk."""
        self.folder = folder
        self.dsn = dsn
        self._checkout, self._environment = checkout, environment
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._processes: dict[str, ServerProcess] = {}

    def start(self, name: str) -> None:
        """Start `spark_job` or `publisher`."""
        self._processes[name] = self._launched(name, self.folder / f"{name}.log")

    def stand_by(self, timeout_s: float) -> None:
        """Start a second job as a standby, and wait until it is warm."""
        log = self.folder / "standby.log"
        log.unlink(missing_ok=True)
        self._processes["standby"] = self._launched("spark_job", log, "--standby")
        wait_for(lambda: b'"standby_ready"' in log.read_bytes(), "the standby", timeout_s, self.check_alive)

    def kill_owner(self) -> float:
        """As `kill_job`, where a standby continues."""
        moment = self.kill_job()
        self._processes["spark_job"] = self._processes.pop("standby")
        return moment

    def second_publisher(self, timeout_s: float) -> None:
        """Start another publisher beside the first, and wait until each holds lanes."""
        self._processes["publisher-2"] = self._launched("publisher", self.folder / "publisher-2.log")
        wait_for(
            lambda: self._connection.execute(_HOLDERS).fetchall() == [(2,)],
            "lanes of the second publisher",
            timeout_s,
            self.check_alive,
        )

    def kill_first_publisher(self) -> float:
        """SIGKILL to the older of two publishers; return the moment, in seconds since 1970."""
        moment = self.kill("publisher")
        self._processes["publisher"] = self._processes.pop("publisher-2")
        return moment

    def kill(self, name: str) -> float:
        """SIGKILL to a process and everything under it; return the moment, in seconds since 1970."""
        moment = time.time()
        self._processes[name].kill()
        return moment

    def _launched(self, module: str, log: Path, *options: str) -> ServerProcess:
        command = [sys.executable, "-m", module, "run", *options]
        return launch(module, command, log=log, environment=self._environment)

    def kill_job(self) -> float:
        """SIGKILL to the job and everything under it; return the moment, in seconds since 1970."""
        return self.kill("spark_job")

    def close(self) -> None:
        """End both."""
        for process in self._processes.values():
            process.terminate(SIGTERM, timeout_s=60)
        self._connection.close()

    def check_alive(self) -> None:
        """Raise RuntimeError with the end of the log where one has ended."""
        for process in self._processes.values():
            if not process.is_alive():
                lines = process.log.read_text("utf-8", "replace").splitlines()[-_TAIL:]
                raise RuntimeError(f"{process.name} of {self._checkout.folder} ended:\n" + "\n".join(lines))

    def pids(self) -> dict[str, int]:
        """Of the job and the publisher; what they have started is below them."""
        return {
            part: self._processes[name].identity.pid
            for part, name in (("job", "spark_job"), ("publisher", "publisher"))
        }

    def cpu(self) -> cpu.Cpu:
        """What the job has used since it was started."""
        return cpu.used_by(self._processes["spark_job"].identity.pid)

    def commits(self, begin_s: float, end_s: float) -> list[datetime]:
        """When the ledger got its rows within a time (seconds since 1970)."""
        span = [datetime.fromtimestamp(moment, UTC) for moment in (begin_s, end_s)]
        return [at for (at,) in self._connection.execute(_COMMITS, span)]

    def wait_until_read(self, events: int, timeout_s: float) -> None:
        """Wait until the ledger has so many input events."""
        wait_for(lambda: self._events() >= events, f"{events} events", timeout_s, self.check_alive)

    def _events(self) -> int:
        ((events,),) = self._connection.execute(_EVENTS).fetchall()
        return int(events)

    def log_size(self) -> int:
        """Bytes of the job's log: where to read on, for `logged`."""
        return os.path.getsize(self.folder / "spark_job.log")

    def logged(self, event: str, from_byte: int = 0) -> list[dict[str, Any]]:
        """Return the job's log lines of this name."""
        with (self.folder / "spark_job.log").open("rb") as log:
            log.seek(from_byte)
            lines = [line for line in log if line.startswith(b"{")]
        return [found for line in lines if (found := json.loads(line)).get("event") == event]


@contextmanager
def running(
    servers: Servers, checkout: Checkout, topic: str, settings: Mapping[str, str]
) -> Iterator[Services]:
    """Make an outbox, and run the checkout's job and publisher on it. `settings`: environment names without OUTBOX_."""
    name = f"bench_{uuid4().hex[:8]}"
    folder = servers.folder / name
    folder.mkdir()
    dsn = servers.stack.create_database(name)
    checkout.migrate(dsn)
    given = {"SOURCE__TOPICS": json.dumps([topic]), "LOG__FORMAT": "json", **settings}
    given |= checkout.folder_settings(folder)
    environment = checkout.environment(dsn, servers.bootstrap_servers)
    environment |= {f"OUTBOX_{key}": value for key, value in given.items()}
    with ExitStack() as cleanup:
        cleanup.callback(servers.stack.drop_database, name)
        services = Services(checkout, environment, dsn, folder)
        cleanup.callback(services.close)
        services.start("publisher")
        services.start("spark_job")
        yield services
