"""A standalone Spark cluster on this machine: a master and workers as separate processes, each with a folder of its own."""

import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import psutil
import pyspark

from devstack.processes.port import LOOPBACK, is_listening
from devstack.processes.process import ServerProcess, launch
from devstack.processes.server import LocalServer
from spark_job.spark.jars import java_executable

_SPARK = Path(pyspark.__path__[0])
_SCALA = "2.13"


class _SparkServer(LocalServer):
    stop_signal = signal.SIGTERM
    start_timeout_s = 120.0
    main: ClassVar[str]
    host = LOOPBACK
    properties: Mapping[str, str] = MappingProxyType({})
    """Spark's properties for it, such as a secret: set them before the start."""

    def _launch(self) -> ServerProcess:
        scratch = self.data_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        properties = self.data_dir / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text(
            "".join(f"{name} {value}\n" for name, value in self.properties.items()), "utf-8"
        )
        command = [
            java_executable(),
            "-Xmx256m",
            f"-Djava.io.tmpdir={scratch}",
            *self._options(),
            "-cp",
            str(_SPARK / "jars" / "*"),
            f"org.apache.spark.deploy.{self.main}",
            "--host",
            self.host,
            "--webui-port",
            "0",
            "--properties-file",
            str(properties),
            *self._arguments(),
        ]
        # Executors inherit it: nothing of ours, so that they have what Spark sends them and no more.
        kept = ("PATH", "LANG", "LC_ALL", "HOME", "JAVA_HOME")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": self.host, "TMPDIR": str(scratch)}
        # What Spark's shell scripts find out: without it a worker takes this for a source tree.
        environment["SPARK_SCALA_VERSION"] = _SCALA
        return launch(self.name, command, log=self.log, environment=environment, detached=self._detached)

    def _options(self) -> list[str]:
        return []

    def _arguments(self) -> list[str]:
        raise NotImplementedError

    def _delete_data(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)


class SparkMaster(_SparkServer):
    """The master. Started again after a kill, it remembers workers and applications."""

    name = "Spark master"
    main = "master.Master"

    @property
    def url(self) -> str:
        """spark://127.0.0.1:port"""
        return f"spark://{LOOPBACK}:{self.port}"

    def _options(self) -> list[str]:
        return [
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={self.data_dir / 'recovery'}",
        ]

    def _arguments(self) -> list[str]:
        return ["--port", str(self.port)]

    def _answers(self) -> bool:
        return is_listening(self.port)


class SparkWorker(_SparkServer):
    """A worker of a master, with so many cores and so much memory for executors."""

    main = "worker.Worker"

    def __init__(
        self,
        data_dir: Path,
        master: SparkMaster,
        number: int,
        *,
        cores: int = 1,
        memory: str = "1g",
        port: int = 0,
        detached: bool = False,
        running: ServerProcess | None = None,
    ) -> None:
        """`number`: from 1 on; each worker has a loopback address of its own, as if it were another machine."""
        super().__init__(data_dir, port=port, detached=detached, running=running)
        self.name = f"Spark worker {number}"
        self.host = f"127.0.0.{number + 1}"
        self._master, self._cores, self._memory = master, cores, memory

    def executors(self) -> list[psutil.Process]:
        """The executors' processes as they are now."""
        if not self.is_running():
            return []
        found = []
        for child in psutil.Process(self.process.identity.pid).children():
            with suppress(psutil.NoSuchProcess):  # gone meanwhile, or a zombie
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def _arguments(self) -> list[str]:
        sizes = ["--cores", str(self._cores), "--memory", self._memory]
        return [*sizes, "--work-dir", str(self.data_dir / "work"), self._master.url]

    def _answers(self) -> bool:
        return "Successfully registered with master" in self.log.read_text("utf-8", errors="replace")
