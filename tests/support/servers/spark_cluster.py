"""A standalone Spark cluster on loopback: a master and workers with addresses and disks of their own, for tests that lose executors."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

from devstack.processes.port import LOOPBACK, ReservedPort, is_listening
from devstack.processes.process import ServerProcess, launch
from spark_job.spark.jars import java_executable
from tests.support.paths import ROOT

_START_S = 120.0
_HOME = Path(pyspark.__file__).parent


class SparkCluster:
    """A master and its workers; each worker runs one executor of one core."""

    def __init__(self, master: str, workers: list[ServerProcess]) -> None:
        self.master = master
        """Its URL."""
        self._workers = workers

    def executors(self) -> list[psutil.Process]:
        """The executors' processes as they are now."""
        return [
            child
            for worker in self._workers
            for child in psutil.Process(worker.identity.pid).children()
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())
        ]


@contextmanager
def spark_cluster(
    folder: Path, hosts: tuple[str, ...] = ("127.0.0.2", "127.0.0.3")
) -> Iterator[SparkCluster]:
    """A cluster that ends with the block. `folder`: for the work directories and logs."""
    with ExitStack() as cleanup:
        port = ReservedPort()
        cleanup.callback(port.close)
        url = f"spark://{LOOPBACK}:{port.number}"
        master = _start(
            folder,
            "master.Master",
            LOOPBACK,
            "--host",
            LOOPBACK,
            "--port",
            str(port.number),
            "--webui-port",
            "0",
        )
        cleanup.callback(master.kill)
        master.wait_until(lambda: is_listening(port.number), timeout_s=_START_S)
        workers = []
        for host in hosts:
            options = [
                "--host",
                host,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / host),
            ]
            workers.append(_start(folder, "worker.Worker", host, *options, url))
            cleanup.callback(workers[-1].kill)
        yield SparkCluster(url, workers)


def _start(folder: Path, main: str, host: str, *options: str) -> ServerProcess:
    command = [
        java_executable(),
        "-cp",
        f"{_HOME}/jars/*",
        "-Xmx256m",
        f"org.apache.spark.deploy.{main}",
        *options,
    ]
    environment = os.environ | {
        "SPARK_HOME": str(_HOME),
        "SPARK_SCALA_VERSION": "2.13",  # as bin/load-spark-env.sh sets it
        "SPARK_LOCAL_IP": host,
        "PYTHONPATH": str(ROOT),
    }
    return launch(main, command, log=folder / f"{main}-{host}.log", environment=environment)
