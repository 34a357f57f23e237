"""`python -m tests.support.held.job`: a job that fails again and again, then commits batches, and says what it holds meanwhile.

A process of its own: it is what is measured. It prints a line of JSON for each measurement, `{"after": "4 attempts", ...}`.
"""

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from confluent_kafka import Producer

from devstack.processes.port import LOOPBACK
from devstack.topics import create_topics
from service.errors import OutboxError
from service.lifecycle import fault_points
from service.lifecycle.fault_points import FaultPlan, InjectedFaultError
from service.settings import Settings
from spark_job.job import attempt
from spark_job.monitoring.health import JobHealth
from spark_job.outputs import transform
from spark_job.spark.lazy_session import LazySession
from spark_job.supervisor.attempts import AttemptPlan, Restarts
from tests.support.held.figures import Held
from tests.support.pipeline.feed import clean, write
from tests.support.pipeline.options import small
from tests.support.pipeline.transforms import CARTS, PAGES

NOBODY = f"{LOOPBACK}:1"
_PARTITIONS = 3
_OF_UNKNOWN_SCHEMA = b"\0\0\0\0\1which only the registry has"
_EVENTS_A_SESSION = 12


class Strike(FaultPlan):
    """Does something each time that this process passes a point."""

    def __init__(self, point: str, act: Callable[[], None]) -> None:
        super().__init__(Path("unused"))
        self._point, self._act = point, act

    def reach(self, point: str) -> None:
        """Do it, if this is the point."""
        if point == self._point:
            self._act()


@contextmanager
def striking(point: str, act: Callable[[], None]) -> Iterator[None]:
    """Within the block, `act` each time that this process passes `point`."""
    fault_points._plan = Strike(point, act)
    try:
        yield
    finally:
        fault_points._plan = None


@dataclass(frozen=True)
class Failure:
    """Of an attempt with these settings, by what happens at a point of this process."""

    settings: Settings
    point: str = "start.begins"
    act: Callable[[], None] = lambda: None


class Failures:
    """Two outboxes and their input, of JSON and of a format whose schemas are in a registry that is away; and each kind of failure."""

    def __init__(
        self, dsns: tuple[str, str], bootstrap: str, prefix: str, folder: Path, sessions: int
    ) -> None:
        """`folder`: of the job's files. `sessions`: of the JSON input, one for each batch."""
        self._dsn = dsns[0]
        topic, coded = f"{prefix}in", f"{prefix}coded-in"
        topics = (topic, coded, prefix + PAGES, prefix + CARTS)
        create_topics(bootstrap, {name: (_PARTITIONS, {}) for name in topics})
        write(bootstrap, topic, clean(1, sessions))
        _write_coded(bootstrap, coded)
        options = small(dsns[0], bootstrap, prefix, topic, folder / "cache", {})
        # A task that fails is not tried again: that costs a new worker each time.
        options["job"] |= {"master": "local[2,1]", "max_events_per_batch": _EVENTS_A_SESSION}
        options["restart"] = {"delay_s": 0}
        self.settings = Settings.model_validate(options)
        """With which nothing fails."""
        nowhere = options | {"kafka": {"bootstrap_servers": NOBODY, "request_timeout_s": 1}}
        options = small(dsns[1], bootstrap, prefix, coded, folder / "cache", {})
        options["source"]["format"] = "avro"
        options["schema_registry"] = {
            "url": f"http://{NOBODY}",
            "timeout_s": 1,
            "options": {"max.retries": 0},
        }
        # The registry is away, Kafka, Postgres in the middle of a batch; and the query fails.
        self.kinds = [
            Failure(Settings.model_validate(options)),
            Failure(Settings.model_validate(nowhere)),
            Failure(self.settings, "sink.after_copy", self._cut_postgres),
            Failure(self.settings, "query.before_action", _fail),
        ]

    def _cut_postgres(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'spark-job'"
            )


def _write_coded(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3})
    for partition in range(_PARTITIONS):
        producer.produce(topic, _OF_UNKNOWN_SCHEMA, "key", partition)
    assert producer.flush(60) == 0
    producer.close()


def _fail() -> None:
    raise InjectedFaultError("the query fails")


_MARGIN = 20
"""Sessions beyond those of the batches: some batches take two."""


class Measured:
    """The job's attempts, in one process with one Spark."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """`settings`: of Spark, the restarts and the transform, which all attempts share. `folder`: of all of the job's files."""
        self._folder = folder
        self._fingerprint = transform.fingerprint(transform.load(settings.transform.function))
        self._stop = threading.Event()
        self._health = JobHealth(settings.metrics.hung_s)
        self.spark = LazySession(settings.job, settings.transform.function)
        self._restarts = Restarts(settings.restart, self.spark, self._stop, self._health)
        self._plan = AttemptPlan()
        self._committed = 0

    def fail(self, failure: Failure) -> None:
        """Make one attempt, which must fail and be followed by another one."""
        with striking(failure.point, failure.act):
            try:
                self._attempt(failure.settings)
            except OutboxError as error:
                following = self._restarts.after(self._plan, error)
                assert following is not None
                self._plan = following
            else:
                raise AssertionError("the attempt did not fail")

    def commit(self, settings: Settings, batches: int, every: int) -> None:
        """Commit so many batches, and measure each time that `every` more are committed."""

        def count() -> None:
            self._committed += 1
            if self._committed % every == 0:
                self.say(f"{self._committed} batches")
            if self._committed >= batches:
                self._stop.set()

        with striking("query.after_batch", count):
            self._attempt(settings)

    def say(self, after: str) -> None:
        """Measure, and print that."""
        print(json.dumps({"after": after} | asdict(Held.now(self.spark.get(), self._folder))), flush=True)

    def _attempt(self, settings: Settings) -> None:
        attempt(settings, self._plan, self.spark, self._stop, self._fingerprint, self._health)


def main(
    dsns: tuple[str, str],
    bootstrap: str,
    folder: Path,
    prefix: Annotated[str, typer.Option(help="Of the topics.")] = "held-",
    attempts: Annotated[int, typer.Option(min=0)] = 0,
    warm: Annotated[int, typer.Option(min=1, help="Attempts before the first measurement.")] = 4,
    every: Annotated[int, typer.Option(min=1, help="Attempts between two measurements.")] = 20,
    batches: Annotated[int, typer.Option(min=0)] = 0,
    batches_every: Annotated[int, typer.Option(min=1)] = 1_000,
) -> None:
    """Measure after `warm` attempts, and after each `every` more; then after each `batches_every` batches."""
    # What Spark, Python and the JVM call temporary is counted.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    failures = Failures(dsns, bootstrap, prefix, folder, batches + _MARGIN)
    kinds = cycle(failures.kinds)
    job = Measured(failures.settings, folder)
    try:
        job.spark.get()
        for number in range(1, attempts + 1):
            job.fail(next(kinds))
            if number >= warm and (number - warm) % every == 0:
                job.say(f"{number} attempts")
        if batches:
            job.commit(failures.settings, batches, batches_every)
    finally:
        job.spark.stop()


if __name__ == "__main__":
    typer.run(main)
