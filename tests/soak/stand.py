"""What the soak runs: real servers, the job, several publishers, consumers that watch; and a supervisor's part."""

import json
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from db.migrate import upgrade
from devstack.kafka import Kafka
from devstack.postgres import Postgres
from devstack.stack import Stack
from tests.soak.resources import Resources
from tests.support.pipeline.options import Options, environment
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.commands import run_command, start_command
from tests.support.processes.service import Service

PREFIX = "soak-"
_HEAP = "640m"
_SEGMENT_BYTES = 16_777_216
_RESTARTABLE = {1, 4, 6, 10, 13, 14, 15, 17, 22}
"""Exit codes after which a supervisor starts a service again (docs/operations.md); 4: its predecessor's connection was not gone yet."""
_PARTITION_BATCHES = 20
_SMALL_PARTITIONS = 400
_COMMAND_S = 300.0
AWAY = {4, 6}
"""Exit codes of a command that another process or a server kept from its work, with nothing done."""


@dataclass
class Stand:
    """Everything that runs. `happened`: counts for the report."""

    postgres: Postgres
    kafka: Kafka
    pipeline: Pipeline
    publishers: list[Service]
    folder: Path
    resources: Resources
    """Of the last publisher, which no fault hits itself."""
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def services(self) -> list[Service]:
        """What must be alive."""
        return [self.pipeline.job, *self.publishers]

    @property
    def targets(self) -> list[Service]:
        """The publishers that faults hit: all but the last."""
        return self.publishers[:-1] or self.publishers

    def supervise(self) -> None:
        """Start again what has ended for a reason that may pass by itself. Fails where a service says that it must not continue."""
        for service in self.services:
            if service.is_alive():
                continue
            code = service.wait(60)
            assert code in _RESTARTABLE, f"exit code {code}: {service.tail()}"
            self.happened[f"{service.module} ended by itself (code {code}), started again"] += 1
            service.start()

    def wait(self, seconds: float) -> None:
        """Let it run so long, supervised."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.supervise()
            self.resources.look()
            time.sleep(min(0.5, left))

    def command(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        """Start `publisher <arguments>`; `settings` are OUTBOX_ variables of this command only."""
        return start_command("publisher", *arguments, variables=environment(self.pipeline.options) | settings)

    def run(self, *arguments: str, may_fail: bool, **settings: str) -> str | None:
        """Run a command; return what it printed, None where `may_fail` and a server was away. Fails on any other end."""
        what = f"publisher {' '.join(arguments)}"
        variables = environment(self.pipeline.options) | settings
        try:
            done = run_command("publisher", *arguments, variables=variables, timeout_s=_COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{what} did not end within {_COMMAND_S:g} s") from error
        # 1 with a report: a part could not be done (retention).
        if done.returncode == 0 or (done.returncode == 1 and done.stdout):
            return done.stdout
        assert done.returncode in (AWAY if may_fail else ()), (
            f"{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        self.happened[f"publisher {arguments[0]}: not done, {_last_line(done.stderr)[:60]}"] += 1
        return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no explanation"


@contextmanager
def stand(folder: Path, publishers: int) -> Iterator[Stand]:
    """Start the servers (Postgres with fsync), make the outbox and the topics; the services are not started yet."""
    with ExitStack() as cleanup:
        postgres = Postgres(folder / "postgres")
        kafka = Kafka(folder / "kafka", heap=_HEAP, settings={"log.segment.bytes": str(_SEGMENT_BYTES)})
        stack = cleanup.enter_context(Stack(postgres, kafka))
        dsn = stack.create_database("soak")
        upgrade(dsn)
        small_partitions(dsn, _PARTITION_BATCHES, _SMALL_PARTITIONS)
        options: Options = {"job": {"latency": 500}, "restart": {"max_delay_s": 5.0}}
        pipeline = Pipeline(dsn, kafka.bootstrap_servers, PREFIX, folder, options=options)
        cleanup.enter_context(pipeline)
        relays = [pipeline.publisher]
        for number in range(1, publishers):
            relay = Service("publisher", environment(pipeline.options), folder / f"publisher-{number}.log")
            cleanup.callback(relay.destroy)
            relays.append(relay)
        try:
            yield Stand(postgres, kafka, pipeline, relays, folder, Resources(dsn, relays[-1]))
        except BaseException:
            print(f"the logs of all processes are kept in {_keep_logs(folder)}", flush=True)
            raise


def _keep_logs(folder: Path) -> Path:
    kept = Path(tempfile.mkdtemp(prefix="spark-outbox-soak-logs-"))
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    for log in folder.glob("*/server.log"):
        shutil.copy(log, kept / f"{log.parent.name}.log")
    return kept


def small_partitions(dsn: str, batches: int, number: int) -> None:
    """Divide the outputs' first partition into `number` of `batches` each, so that retention has something to drop within minutes.

    The rest keeps the name that `ensure_partitions` looks for.
    """
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "ALTER TABLE outbox.session_output DETACH PARTITION outbox.session_output_p00000000"
        )
        for n in range(number):
            connection.execute(
                f"CREATE TABLE outbox.session_output_p1{n:07} PARTITION OF outbox.session_output"
                f" FOR VALUES FROM ({n * batches}) TO ({(n + 1) * batches})"
            )
        connection.execute(
            "ALTER TABLE outbox.session_output ATTACH PARTITION outbox.session_output_p00000000"
            f" FOR VALUES FROM ({number * batches}) TO (10000)"
        )


def as_json(output: str) -> dict[str, object]:
    """Return what a command printed with --json."""
    found: dict[str, object] = json.loads(output[output.index("{\n") :])
    return found
