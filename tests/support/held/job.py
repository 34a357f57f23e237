"""`python -m tests.support.held.job`: a job that fails again and again, then commits batches, and says what it holds meanwhile.

A process of its own: it is what is measured. It prints a line of JSON for each measurement, `{"after": "4 attempts", ...}`.
"""

import json
import os
import tempfile
import threading
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Annotated

import typer

from service.errors import OutboxError
from service.settings import Settings
from spark_job.assembly import transform
from spark_job.job import attempt
from spark_job.monitoring.condition import Condition
from spark_job.spark.session import LazySession
from spark_job.supervisor.attempts import AttemptPlan, Restarts
from tests.support.held.failures import Failure, Failures, striking
from tests.support.held.figures import Held

_MARGIN = 20
"""Sessions beyond those of the batches: some batches take two."""


class Measured:
    """The job's attempts, in one process with one Spark."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """`settings`: of Spark, the restarts and the transform, which all attempts share. `folder`: of all of the job's files."""
        self._folder = folder
        self._fingerprint = transform.fingerprint(transform.load(settings.transform.function))
        self._stop = threading.Event()
        self._condition = Condition(settings.metrics.hung_s)
        self.spark = LazySession(settings.job, settings.transform.function)
        self._restarts = Restarts(settings.restart, self.spark, self._stop, self._condition)
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
        attempt(settings, self._plan, self.spark, self._stop, self._fingerprint, self._condition)


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
