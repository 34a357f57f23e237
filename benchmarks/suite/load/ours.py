"""This project's job and publisher, of `benchmarks.peers`, as the suite runs them; also with the tasks on a Spark cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.contender import Work
from benchmarks.peers.ours import JOB, PUBLISHER, Ours, RunningOurs
from benchmarks.pipeline.checkout import OURS, Checkout
from benchmarks.suite.load.cluster import cluster
from benchmarks.support.servers import Servers
from devstack.spark import SparkWorker

__all__ = ["JOB", "PUBLISHER", "Clustered", "Ours", "RunningOurs", "ours"]

SETTINGS = {
    "TRANSFORM__FUNCTION": "benchmarks.transforms:twenty",
    "JOB__MAX_EVENTS_PER_BATCH": "600000",
}
"""The transform is one that earlier checkouts have too."""


def ours(settings: Mapping[str, str] | None = None, *, name: str = "ours", checkout: Checkout = OURS) -> Ours:
    """Return this project's services. `settings`: further ones, environment names without OUTBOX_."""
    return Ours(checkout, SETTINGS | dict(settings or {}), name)


class RunningOnCluster(RunningOurs):
    """With executors in processes of their own."""

    def __init__(self, running: RunningOurs, workers: Sequence[SparkWorker]) -> None:
        self.__dict__ |= running.__dict__
        self._workers = workers

    def pids(self) -> Mapping[str, Sequence[int]]:
        """By part."""
        return {**super().pids(), "executors": [each.process.identity.pid for each in self._workers]}


@dataclass(frozen=True)
class Clustered:
    """Ours with the tasks on so many Spark workers of one core."""

    servers: Servers
    workers: int
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return f"ours, {self.workers} Spark workers"

    @contextmanager
    def running(self, work: Work) -> Iterator[RunningOnCluster]:
        """Start the cluster, and ours on it."""
        with (
            cluster(self.servers, self.workers) as (placed, workers),
            ours({**placed, **self.settings}).running(work) as running,
        ):
            yield RunningOnCluster(running, workers)
