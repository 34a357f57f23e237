"""A real Apache Kafka (KRaft: broker and controller in one process) as a local process, from its own jars.

They are those of jars.lock, or of the lock file that DEVSTACK_KAFKA names.
"""

import base64
import os
import shutil
import signal
import subprocess
import uuid
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devstack.processes.errors import DevstackError, tail
from devstack.processes.port import LOOPBACK, ReservedPort, is_listening
from devstack.processes.process import ServerProcess, launch
from devstack.processes.server import LocalServer
from spark_job.spark.jars import Progress, java_executable, resolve

LOCK_VARIABLE = "DEVSTACK_KAFKA"
"""A lock file with the jars of another Kafka, as `python -m spark_job.spark.jars --relock` makes it."""
_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
"""
QUICK = "-XX:TieredStopAtLevel=1"
"""Option of a JVM that lives for a short time."""
# What one node needs instead of the defaults for three, and what makes it start fast.
ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker may register again only when its former session has timed out (default 9 s).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # The default of 128 MiB is a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}


def new_cluster_id() -> str:
    """An id as Kafka writes them: a uuid in 22 characters."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


class KafkaServer(Protocol):
    """A Kafka that can be reached."""

    @property
    def bootstrap_servers(self) -> str:
        """host:port, or several separated by commas."""


class ExternalKafka:
    """A Kafka that somebody else runs."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


class Kafka(LocalServer):
    """One broker on one data directory and one loopback port, both kept over stop, kill and start."""

    name = "Kafka"
    stop_signal = signal.SIGTERM
    start_timeout_s = 120.0

    def __init__(
        self,
        data_dir: Path,
        *,
        fast: bool = False,
        heap: str = "512m",
        port: int = 0,
        settings: dict[str, str] | None = None,
        detached: bool = False,
        running: ServerProcess | None = None,
        progress: Progress | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Describe a broker; nothing is started.

        `fast`: the JVM compiles quickly, not well, which costs a broker of a test half as much CPU. `heap` is the JVM's -Xmx. `settings`
        are further broker settings by name. `progress` is called during the jars' first download. `cluster_id`: the id of its
        cluster (None: a new one). The rest is as for LocalServer.
        """
        super().__init__(data_dir, port=port, detached=detached, running=running)
        self._cluster_id = cluster_id or new_cluster_id()
        self._fast = fast
        self._heap = heap
        self._settings = settings or {}
        self._progress = progress
        self._controller_port: ReservedPort | None = None

    @property
    def bootstrap_servers(self) -> str:
        """127.0.0.1:port"""
        return f"{LOOPBACK}:{self.port}"

    def _launch(self) -> ServerProcess:
        options = self.java_options()
        java = [java_executable(), *([QUICK] if self._fast else []), *options]
        (self.data_dir / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        properties = self.data_dir / "server.properties"
        lines = (f"{name}={value}\n" for name, value in self._server_settings().items())
        properties.write_text("".join(lines), encoding="utf-8")
        if not (self._storage / "meta.properties").exists():
            self._format([java_executable(), QUICK, *options], properties)
        return self._launch_server([*java, "kafka.Kafka", str(properties)])

    def _launch_server(self, command: list[str]) -> ServerProcess:
        return launch(self.name, command, log=self.log, detached=self._detached)

    def _delete_data(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)
        if self._controller_port is not None:
            self._controller_port.close()
            self._controller_port = None

    @property
    def _storage(self) -> Path:
        return self.data_dir / "storage"

    def jars_lock(self) -> Path | Traversable:
        """The lock file of the jars. Raises DevstackError where the one that is named is no file."""
        named = os.environ.get(LOCK_VARIABLE)
        if named and not Path(named).is_file():
            raise DevstackError(f"{LOCK_VARIABLE} is {named!r}, which is not a file")
        return Path(named) if named else files("devstack") / "jars.lock"

    def java_options(self) -> list[str]:
        jars = resolve(self.jars_lock(), progress=self._progress)
        scratch = self.data_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        return [
            f"-Xmx{self._heap}",
            "-Djava.awt.headless=true",
            # Native libraries are unpacked there; a killed JVM would leave them in /tmp.
            f"-Djava.io.tmpdir={scratch}",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]

    def _server_settings(self) -> dict[str, str]:
        if self._controller_port is None:
            self._controller_port = ReservedPort()
        controller = f"{LOOPBACK}:{self._controller_port.number}"
        return (
            ONE_NODE
            | {
                "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
                # Static voters: unlike a dynamic quorum's they are not stored, so the port may change.
                "controller.quorum.voters": f"1@{controller}",
                "log.dirs": str(self._storage),
            }
            | self._settings
        )

    def _format(self, java: list[str], properties: Path) -> None:
        # The remains of an interrupted format would make this one refuse.
        shutil.rmtree(self._storage, ignore_errors=True)
        command = [*java, "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(properties)]
        with self.log.open("a") as output:
            result = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if result.returncode != 0:
            raise DevstackError(f"formatting Kafka's storage failed; {tail(self.log)}")

    def _answers(self) -> bool:
        # Asked first, because a client created too early reports every refused connection on stderr.
        if not is_listening(self.port):
            return False
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers})
            return bool(client.list_topics(timeout=5).brokers)
        except KafkaException:
            return False
