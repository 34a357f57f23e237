"""A Spark cluster of so many workers of one core on this machine, for ours."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.support.servers import Servers
from devstack.processes.port import LOOPBACK
from devstack.spark import SparkMaster, SparkWorker


@contextmanager
def cluster(servers: Servers, workers: int) -> Iterator[tuple[dict[str, str], list[SparkWorker]]]:
    """Start a Spark cluster of so many workers of one core; yield the settings that send the tasks there. 0: none."""
    with ExitStack() as running:
        if not workers:
            yield {}, []
            return
        folder = servers.folder / "spark"
        master = running.enter_context(SparkMaster(folder / "master"))
        made = [SparkWorker(folder / f"worker-{number}", master, number) for number in range(1, workers + 1)]
        for worker in made:
            running.enter_context(worker)
        options = {"spark.driver.host": LOOPBACK, "spark.executor.memory": "1g"}
        yield (
            {"JOB__MASTER": master.url, "JOB__CACHE": "cache", "JOB__SPARK_OPTIONS": json.dumps(options)},
            made,
        )
