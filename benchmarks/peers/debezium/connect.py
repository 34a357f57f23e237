"""One worker of a distributed Kafka Connect with Debezium's connector: started, killed and started again."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from signal import SIGTERM

from benchmarks.peers.debezium.settings import Choice, connector_settings, worker_settings
from devstack.processes.errors import DevstackError
from devstack.processes.port import ReservedPort
from devstack.processes.process import ServerProcess, launch
from spark_job.spark.jars import JarsError, java_executable, resolve

HEAP = "1g"
READY_S = 120.0
STOP_S = 60.0
# Those of Connect itself, which a plugin's folder must not bring a second time.
_CONNECTS_OWN = ("kafka-clients-", "connect-api-", "slf4j-api-")
_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
"""


class ConnectWorker:
    """The worker's process, and the one connector that it runs."""

    def __init__(self, bootstrap: str, folder: Path, name: str, choice: Choice) -> None:
        """`folder`: for its log and files. `name`: of connector, slot, publication and group, so lower-case letters, digits, `_`."""
        self.choice = choice
        self._name, self._folder, self._bootstrap = name, folder, bootstrap
        self._port = ReservedPort()
        self._process: ServerProcess | None = None

    @property
    def process(self) -> ServerProcess:
        """The worker's JVM. Raises DevstackError when it was not started."""
        if self._process is None:
            raise DevstackError("Kafka Connect was not started: call start() first")
        return self._process

    def start(self) -> None:
        """Start the worker; a connector that its cluster has stored goes on by itself. Raises DevstackError without Java or its jars."""
        properties = self._folder / "worker.properties"
        plugins = self._folder / "plugins"
        try:
            command = [java_executable(), "-Xms256m", f"-Xmx{HEAP}", *_kafka_script_options()]
            jars = resolve(files("benchmarks.peers.debezium") / "connect.lock")
            _link_plugin(plugins / "debezium-postgres")
        except JarsError as error:
            raise DevstackError(
                f"Debezium cannot be measured: {error} (benchmarks/peers/debezium/README.md)"
            ) from error
        settings = worker_settings(
            self._bootstrap, self._port.number, self._name, plugins.resolve(), self.choice
        )
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        logging = self._folder / "log4j2.properties"
        logging.write_text(_LOGGING, "utf-8")
        command += [f"-Dlog4j2.configurationFile={logging}", "-cp", os.pathsep.join(map(str, jars))]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
        self._process = launch("Kafka Connect", command, log=self._folder / "connect.log")

    def create_connector(self, dsn: str) -> None:
        """Create the connector on this database and wait until its task runs and its slot is in use."""
        self.process.wait_until(lambda: self._ask("GET", "/connectors") is not None, timeout_s=READY_S)
        self._order("PUT", "/config", connector_settings(dsn, self._name, self.choice))
        self._wait_for("RUNNING", tasks=1)

    def stop_connector(self) -> None:
        """Stop the connector's task, cleanly; its slot keeps what is committed from now on."""
        self._order("PUT", "/stop")
        self._wait_for("STOPPED", tasks=0)

    def resume_connector(self) -> None:
        """Let the stopped connector go on; returns at once."""
        self._order("PUT", "/resume")

    def kill(self) -> float:
        """SIGKILL to the worker; return the moment, seconds since 1970."""
        moment = time.time()
        self.process.kill()
        return moment

    def end(self) -> None:
        """Stop the worker, and give its port back."""
        if self._process is not None:
            self._process.terminate(SIGTERM, timeout_s=STOP_S)
            self._process = None
        self._port.close()

    def _order(self, method: str, path: str, body: Mapping[str, str] | None = None) -> None:
        """Until it is taken: a worker that has just started answers 409 while its group rebalances."""
        self.process.wait_until(
            lambda: self._ask(method, f"/connectors/{self._name}{path}", body) is not None, timeout_s=READY_S
        )

    def _wait_for(self, state: str, *, tasks: int) -> None:
        def is_so() -> bool:
            status = self._ask("GET", f"/connectors/{self._name}/status")
            if not isinstance(status, dict):
                return False
            states = [task["state"] for task in status["tasks"]]
            if "FAILED" in [*states, status["connector"]["state"]]:
                raise DevstackError(f"Debezium's connector failed: {status}")
            return status["connector"]["state"] == state and states == ["RUNNING"] * tasks

        self.process.wait_until(is_so, timeout_s=READY_S)

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> object | None:
        """Return the answer, {} for an empty one; None where the worker does not listen yet or is busy. Raises DevstackError."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port.number}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            # 404: a connector whose configuration the worker has not read back yet.
            if error.code in (404, 409, 500, 503):
                return None
            raise DevstackError(
                f"Kafka Connect refused {method} {path}: {error.read().decode()[:2000]}"
            ) from error
        except OSError:
            return None
        return {} if not text else json.loads(text)


@contextmanager
def connect_worker(bootstrap: str, folder: Path, name: str, choice: Choice) -> Iterator[ConnectWorker]:
    """A started worker in a folder of its own; it ends with the block."""
    own = folder / name
    own.mkdir()
    worker = ConnectWorker(bootstrap, own, name, choice)
    try:
        worker.start()
        yield worker
    finally:
        worker.end()


def _kafka_script_options() -> list[str]:
    """As Kafka's own start script sets them."""
    return [
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true",
    ]


def _link_plugin(folder: Path) -> None:
    """Put the connector's jars into a folder of the plugin path. Raises JarsError."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    for jar in resolve(files("benchmarks.peers.debezium") / "connector.lock"):
        if not jar.name.startswith(_CONNECTS_OWN):
            (folder / jar.name).symlink_to(jar)
