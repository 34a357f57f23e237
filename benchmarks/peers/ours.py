"""This project's own job and publisher, with a Postgres (with fsync) that nobody else uses; also with the tasks on a Spark cluster."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM

import psycopg

from benchmarks.peers.checkout import OURS, Checkout
from benchmarks.peers.contender import Work
from benchmarks.peers.process import tree
from devstack.kafka import ExternalKafka
from devstack.postgres import Postgres
from devstack.processes.errors import tail
from devstack.processes.port import LOOPBACK
from devstack.processes.process import ServerProcess, launch
from devstack.spark import SparkMaster, SparkWorker
from devstack.stack import Stack

JOB, PUBLISHER, POSTGRES, EXECUTORS = "job", "publisher", "postgres", "executors"
_MODULES = {JOB: "spark_job", PUBLISHER: "publisher"}
_STANDBY = "standby"
_SECOND = "publisher-2"
_DATABASE = "bench"
_PRODUCER = {"compression.type": "lz4"}
"""As the peers' producers."""
_HOLDERS = "SELECT count(DISTINCT lease_holder) FROM outbox.lane WHERE lease_until > now()"


@dataclass(frozen=True)
class Ours:
    """The services of one checkout."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Further ones: environment names without OUTBOX_."""
    checkout: Checkout = OURS
    workers: int = 0
    """Spark workers of one core each that run the tasks; 0: the driver runs them."""
    latency: str = "lowest"
    """`[job] latency`."""

    @property
    def name(self) -> str:
        """As it stands in tables."""
        workers = f"{self.workers} Spark workers" if self.workers else ""
        return ", ".join(
            filter(None, (self.checkout.name, workers, self.latency if self.latency != "lowest" else ""))
        )

    @contextmanager
    def running(self, work: Work) -> Iterator["RunningOurs"]:
        """Start Postgres, make an outbox, and run both services on it."""
        postgres = Postgres(work.folder / "postgres")
        with ExitStack() as cleanup:
            stack = cleanup.enter_context(Stack(postgres, ExternalKafka(work.bootstrap_servers)))
            dsn = stack.create_database(_DATABASE)
            self.checkout.migrate(dsn)
            placed, workers = cleanup.enter_context(_cluster(work.folder / "spark", self.workers))
            environment = self._environment(work, dsn, placed)
            running = RunningOurs(environment, work.folder, dsn, postgres, workers)
            cleanup.callback(running.close)
            running.start(PUBLISHER)
            running.start(JOB)
            yield running

    def _environment(self, work: Work, dsn: str, placed: Mapping[str, str]) -> dict[str, str]:
        given = {
            "SOURCE__TOPICS": json.dumps([work.input_topic]),
            "SESSION__KEY": "key",
            "TRANSFORM__FUNCTION": "benchmarks.transforms:twenty",
            "JOB__LATENCY": self.latency,
            "JOB__MAX_EVENTS_PER_BATCH": "600000",
            "KAFKA__OPTIONS": json.dumps(_PRODUCER),
            "LOG__FORMAT": "json",
            **self.checkout.folder_settings(work.folder),
            **placed,
            **self.settings,
        }
        environment = self.checkout.environment(dsn, work.bootstrap_servers)
        return environment | {f"OUTBOX_{key}": value for key, value in given.items()}


@contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[tuple[dict[str, str], list[SparkWorker]]]:
    """Start so many Spark workers of one core; yield the settings that send the tasks there. 0: none."""
    with ExitStack() as running:
        if not workers:
            yield {}, []
            return
        master = running.enter_context(SparkMaster(folder / "master"))
        made = [SparkWorker(folder / f"worker-{number}", master, number) for number in range(1, workers + 1)]
        for worker in made:
            running.enter_context(worker)
        options = json.dumps({"spark.driver.host": LOOPBACK, "spark.executor.memory": "1g"})
        yield {"JOB__MASTER": master.url, "JOB__CACHE": "cache", "JOB__SPARK_OPTIONS": options}, made


class RunningOurs:
    """Job, publisher, Postgres and Spark workers; a standby and a second publisher where asked for."""

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        dsn: str,
        postgres: Postgres,
        workers: Sequence[SparkWorker],
    ) -> None:
        """`folder`: for logs."""
        self.dsn = dsn
        self._environment, self._folder = environment, folder
        self._postgres, self._workers = postgres, workers
        self._processes: dict[str, ServerProcess] = {}

    def pids(self) -> Mapping[str, Sequence[int]]:
        """Of all, with all below them."""
        roots = {name: self._processes[name].identity.pid for name in (JOB, PUBLISHER)}
        roots[POSTGRES] = self._postgres.process.identity.pid
        found = {part: tree(pid) for part, pid in roots.items()}
        if self._workers:
            found[EXECUTORS] = [each.process.identity.pid for each in self._workers]
        return found

    def check_alive(self) -> None:
        """Raise RuntimeError with the end of its log where a service has ended."""
        for process in self._processes.values():
            if not process.is_alive():
                raise RuntimeError(f"{process.name} ended; {tail(process.log)}")

    def kill(self, part: str) -> float:
        """SIGKILL to a part and everything below it; return the moment, seconds since 1970."""
        moment = time.time()
        if part == POSTGRES:
            self._postgres.kill()
        else:
            self._processes[part].kill()
        return moment

    def start(self, part: str) -> None:
        """Start a part, for the first time or again."""
        if part == POSTGRES:
            self._postgres.start()
        else:
            self._processes[part] = self._launched(part, self._folder / f"{part}.log")

    def stand_by(self, timeout_s: float) -> None:
        """Start a second job as a standby, and wait until it is warm."""
        log = self._folder / f"{_STANDBY}.log"
        log.unlink(missing_ok=True)
        self._processes[_STANDBY] = self._launched(JOB, log, "--standby")
        self._wait_for(lambda: b'"standby_ready"' in log.read_bytes(), "the standby", timeout_s)

    def kill_owner(self) -> float:
        """SIGKILL to the job whose standby continues; return the moment, seconds since 1970."""
        moment = self.kill(JOB)
        self._processes[JOB] = self._processes.pop(_STANDBY)
        return moment

    def second_publisher(self, timeout_s: float) -> None:
        """Start another publisher beside the first, and wait until each holds lanes."""
        self._processes[_SECOND] = self._launched(PUBLISHER, self._folder / f"{_SECOND}.log")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            self._wait_for(
                lambda: connection.execute(_HOLDERS).fetchall() == [(2,)],
                "lanes of the second publisher",
                timeout_s,
            )

    def kill_first_publisher(self) -> float:
        """SIGKILL to the older of two publishers; return the moment, seconds since 1970."""
        moment = self.kill(PUBLISHER)
        self._processes[PUBLISHER] = self._processes.pop(_SECOND)
        return moment

    def close(self) -> None:
        """End the services."""
        for process in self._processes.values():
            process.terminate(SIGTERM, timeout_s=60)

    def _launched(self, part: str, log: Path, *options: str) -> ServerProcess:
        command = [sys.executable, "-m", _MODULES[part], "run", *options]
        return launch(part, command, log=log, environment=self._environment)

    def _wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check_alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {timeout_s:g} s")
            time.sleep(0.02)
