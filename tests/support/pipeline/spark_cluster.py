"""A Spark cluster for the job's tasks: a master and two workers, which share no folder and authenticate and encrypt all that they send."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from devstack.processes.port import LOOPBACK
from devstack.spark import SparkMaster, SparkWorker
from service.kafka.transport import SPARK_CHANNELS

Server = TypeVar("Server", SparkMaster, SparkWorker)

SECRET = "spark-cluster-Qn8sD3"
ENCRYPTED = SPARK_CHANNELS | {"spark.authenticate.secret": SECRET}
SPARK_OPTIONS = {
    "spark.authenticate.secret": SECRET,
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.executor.memory": "768m",
}
"""`[job] spark_options` of a job whose tasks run there."""


class SparkCluster(NamedTuple):
    """Its servers."""

    master: SparkMaster
    workers: list[SparkWorker]

    def executors(self) -> list[psutil.Process]:
        """All executors as they are now."""
        return [executor for worker in self.workers for executor in worker.executors()]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Start one, each server with a folder of its own below `folder`; at the end nothing of it is left."""
    with ExitStack() as cleanup:

        def started(server: Server) -> Server:
            cleanup.callback(server.destroy)
            server.properties = ENCRYPTED
            server.start()
            return server

        master = started(SparkMaster(folder / "master"))
        workers = [started(SparkWorker(folder / f"worker-{number}", master, number)) for number in (1, 2)]
        yield SparkCluster(master, workers)
