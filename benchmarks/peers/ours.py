"""This project's own job and publisher, with a Postgres that nobody else uses."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.peers.contender import Work
from benchmarks.peers.process import tree
from benchmarks.peers.routed import TOPIC_VARIABLE
from benchmarks.pipeline.checkout import OURS, Checkout
from benchmarks.pipeline.services import Services
from devstack.kafka import ExternalKafka
from devstack.postgres import Postgres
from devstack.stack import Stack

JOB, PUBLISHER, POSTGRES = "job", "publisher", "postgres"
_MODULES = {JOB: "spark_job", PUBLISHER: "publisher"}
_DATABASE = "bench"
_PRODUCER = {"compression.type": "lz4"}
"""As the peers' producers."""
_MAX_EVENTS = 1_000_000
"""Of a backlog's batch: each has its own plan, and what is open at its end is kept and taken up again."""


@dataclass(frozen=True)
class Ours:
    """The services of one checkout."""

    checkout: Checkout = OURS
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further ones: environment names without OUTBOX_."""
    name: str = "Spark outbox"

    @contextmanager
    def running(self, work: Work) -> Iterator["RunningOurs"]:
        """Start Postgres (with fsync), make an outbox, and run both services on it."""
        postgres = Postgres(work.folder / "postgres")
        with ExitStack() as cleanup:
            stack = cleanup.enter_context(Stack(postgres, ExternalKafka(work.bootstrap_servers)))
            dsn = stack.create_database(_DATABASE)
            self.checkout.migrate(dsn)
            services = Services(self.checkout, self._environment(work, dsn), dsn, work.folder)
            cleanup.callback(services.close)
            running = RunningOurs(services, postgres)
            running.start(PUBLISHER)
            running.start(JOB)
            yield running

    def _environment(self, work: Work, dsn: str) -> dict[str, str]:
        given = {
            "SOURCE__TOPICS": json.dumps([work.input_topic]),
            "SESSION__KEY": "key",
            "TRANSFORM__FUNCTION": "benchmarks.peers.routed:twenty_routed",
            "JOB__TRIGGER_MS": "0",
            "JOB__MAX_EVENTS_PER_BATCH": str(_MAX_EVENTS),
            "KAFKA__OPTIONS": json.dumps(_PRODUCER),
            "LOG__FORMAT": "json",
            **self.checkout.folder_settings(work.folder),
            **self.settings,
        }
        environment = self.checkout.environment(dsn, work.bootstrap_servers)
        environment |= {f"OUTBOX_{key}": value for key, value in given.items()}
        return environment | {TOPIC_VARIABLE: work.output_topic}


class RunningOurs:
    """Job, publisher and Postgres."""

    def __init__(self, services: Services, postgres: Postgres) -> None:
        self.services = services
        self._postgres = postgres

    def pids(self) -> Mapping[str, Sequence[int]]:
        """Of all three, with all below them."""
        roots = {**self.services.pids(), POSTGRES: self._postgres.process.identity.pid}
        return {part: tree(pid) for part, pid in roots.items()}

    def check_alive(self) -> None:
        """Raise RuntimeError with the end of its log where a service has ended."""
        self.services.check_alive()

    def kill(self, part: str) -> float:
        """SIGKILL to a part and everything below it; return the moment, seconds since 1970."""
        if part != POSTGRES:
            return self.services.kill(_MODULES[part])
        moment = time.time()
        self._postgres.kill()
        return moment

    def start(self, part: str) -> None:
        """Start a part, for the first time or again."""
        if part == POSTGRES:
            self._postgres.start()
        else:
            self.services.start(_MODULES[part])
