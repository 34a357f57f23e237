"""This project's job and publisher on an outbox of their own, as a contender; also those of another checkout, or on a Spark cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.peers.contender import Work
from benchmarks.pipeline.checkout import OURS, Checkout
from benchmarks.pipeline.services import Services, running
from benchmarks.suite.load.cluster import cluster
from benchmarks.support.servers import Servers

JOB, PUBLISHER = "job", "publisher"
SETTINGS = {
    "SESSION__KEY": "key",
    "TRANSFORM__FUNCTION": "benchmarks.transforms:twenty",
    "JOB__TRIGGER_MS": "0",
    "JOB__MAX_EVENTS_PER_BATCH": "600000",
}
_NAMES = {JOB: "spark_job", PUBLISHER: "publisher"}


@dataclass(frozen=True)
class RunningOurs:
    """Both services, started."""

    services: Services
    further: Mapping[str, Sequence[int]]
    """Processes that they do not start themselves: Postgres, executors."""

    @property
    def dsn(self) -> str:
        """Of the outbox."""
        return self.services.dsn

    def pids(self) -> Mapping[str, Sequence[int]]:
        """By part."""
        return {part: [pid] for part, pid in self.services.pids().items()} | dict(self.further)

    def check_alive(self) -> None:
        """Raises RuntimeError with the end of its log where a service has ended."""
        self.services.check_alive()

    def kill(self, part: str) -> float:
        """SIGKILL to `job` or `publisher`, and what is below; it is not missed until it is started again."""
        moment = self.services.kill(_NAMES[part])
        self.services.forget(_NAMES[part])
        return moment

    def start(self, part: str) -> None:
        """Start it again."""
        self.services.start(_NAMES[part])

    def kill_owner(self) -> float:
        """SIGKILL to the job, where a standby goes on; return the moment, in seconds since 1970."""
        return self.services.kill_owner()

    def second_publisher(self, timeout_s: float) -> None:
        """Start another publisher, and wait until it shares the lanes. Raises RuntimeError."""
        self.services.second_publisher(timeout_s)

    def kill_first_publisher(self) -> float:
        """SIGKILL to the older of two publishers; the other one goes on. Return the moment, in seconds since 1970."""
        return self.services.kill_first_publisher()


@dataclass(frozen=True)
class Ours:
    """How to run them."""

    servers: Servers
    name: str = "ours"
    checkout: Checkout = OURS
    settings: Mapping[str, str] = field(default_factory=dict)
    """Beyond SETTINGS: environment names without OUTBOX_."""
    spark_workers: int = 0
    """Tasks run on a cluster of so many workers of one core; 0: in the job's JVM."""

    @contextmanager
    def running(self, work: Work) -> Iterator[RunningOurs]:
        """Make an outbox, and start both on it."""
        settings = SETTINGS | {"JOB__MASTER": f"local[{work.parallelism}]"} | dict(self.settings)
        with ExitStack() as cleanup:
            placed, executors = cleanup.enter_context(cluster(self.servers, self.spark_workers))
            services = cleanup.enter_context(
                running(self.servers, self.checkout, work.input_topic, settings | placed)
            )
            postgres, _ = self.servers.stack.local_servers
            further: dict[str, list[int]] = {"postgres": [postgres.process.identity.pid]}
            if executors:
                further["executors"] = [each.process.identity.pid for each in executors]
            yield RunningOurs(services, further)
