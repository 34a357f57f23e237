"""Both services over TLS, with the listed rights and no others; and no secret anywhere but where it was given.

Spark is set so that what it may ever write to disk, it writes: memory for nothing, a file for each pickled function, the event log, all of
it uncompressed.
"""

import json
import shutil
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.spark_cluster import SPARK_OPTIONS, spark_cluster
from tests.support.scraping import asked, free_port
from tests.support.secured.rights import Right
from tests.support.secured.servers import Servers, secured_servers


def secrets_in_files(
    folder: Path, secrets: Mapping[str, str], but: Iterable[Path] = ()
) -> Iterator[tuple[str, str]]:
    """Yield (file, whose secret it holds) for all that is below a folder now, except for files and folders in `but`."""
    kept = set(but)
    for path, content in contents(folder):
        if not kept & {path, *path.parents}:
            yield from ((str(path), whose) for whose, secret in secrets.items() if secret.encode() in content)


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each file below a folder with its bytes; one that goes away meanwhile is left out."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                yield path, path.read_bytes()


def on_command_lines(
    processes: Iterable[psutil.Process], secrets: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return (process, whose secret it shows) of what `ps` shows."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            shown = " ".join(process.cmdline())
            found += [(process.name(), whose) for whose, secret in secrets.items() if secret in shown]
    return found


def in_environments(processes: Iterable[psutil.Process], secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (process, whose secret it has) of the environments with which processes were started."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            given = " ".join(process.environ().values())
            found += [(process.name(), whose) for whose, secret in secrets.items() if secret in given]
    return found


SECRETS = {
    "job kafka": "kafka-job-Zt6vQ1",
    "job postgres": "postgres-job-Xw9rK4",
    "publisher kafka": "kafka-publisher-Jm2cB8",
    "publisher postgres": "postgres-publisher-Hd5nL7",
}
SPARK = {
    "spark.broadcast.UDFCompressionThreshold": "1",
    "spark.memory.fraction": "0.0001",
    "spark.broadcast.compress": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
READ = Right("topic", "{input}", "Read", prefix=False)


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A Kafka and a Postgres that want TLS and passwords."""
    with secured_servers(tmp_path_factory.mktemp("servers"), SECRETS) as found:
        yield found


@pytest.fixture
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where the tasks run: `[job]` settings."""
    if not request.param:
        yield {"spark_options": SPARK}
        return
    with spark_cluster(tmp_path) as cluster:
        yield {"master": cluster.master.url, "spark_options": SPARK | SPARK_OPTIONS}


@pytest.mark.guarantee(108, 113)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "placed",
    [
        pytest.param(False, id="in the job's process"),
        pytest.param(True, id="on a cluster", marks=pytest.mark.faults),
    ],
    indirect=True,
)
def test_the_listed_rights_are_enough_over_tls_and_no_secret_is_written_or_shown(
    servers: Servers, placed: dict[str, Any], topic_prefix: str, tmp_path: Path
) -> None:
    kafka, postgres = servers
    given, events = tmp_path / "given", tmp_path / "events"
    given.mkdir()
    events.mkdir()
    ports = {"job_port": free_port(), "port": free_port()}
    options: Options = {
        "job": placed | {"spark_options": placed["spark_options"] | {"spark.eventLog.dir": events.as_uri()}},
        "metrics": ports,
        "log": {"level": "DEBUG"},
    }
    with Pipeline(
        postgres.dsn(), kafka.bootstrap_servers, topic_prefix, tmp_path, options=options
    ) as pipeline:
        names = {"input": pipeline.input, "group": pipeline.options["source"]["consumer_group"]}
        servers.allow(names["input"], names["group"], pipeline.outputs)
        as_job, as_publisher = job_from_files(servers, given), publisher_from_environment(servers)
        scanned = Scanned(pipeline, tmp_path, given)

        pipeline.hold_open(10)
        pipeline.feed(41, sessions=30)
        pipeline.job.start(**as_job)
        pipeline.publisher.start(**as_publisher)
        pipeline.wait_for_input(pipeline.expectation())
        scanned.look()
        forget_open_sessions(pipeline)
        pipeline.feed(42, sessions=30)
        pipeline.wait_for_input(pipeline.expectation())
        pipeline.wait_for_report()
        assert pipeline.rebuilt() != [], (
            "the tasks were to read again with the secrets that were sent beside them"
        )
        for port in ports.values():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                scanned.take("metrics", answer.read())
            scanned.take("readyz", json.dumps(asked(port, "readyz")[1]).encode())
        scanned.look()

        kafka.revoke(READ.acl("job", **names))
        pipeline.feed(43, sessions=10)
        assert pipeline.job.wait() == 16, pipeline.job.tail()
        assert "Read on the input topics" in pipeline.job.log()
        scanned.look()
        kafka.allow(READ.acl("job", **names))
        pipeline.job.start(**as_job)
        pipeline.release()
        pipeline.finish()
        scanned.look()
        assert scanned.spilled, "Spark was to write what it broadcasts to disk"
        assert scanned.pickled, "Spark was to write the pickled function to disk"
        assert list(contents(events)) != []


def job_from_files(servers: Servers, folder: Path) -> dict[str, str]:
    """Settings of the job: each secret in a file of its own."""
    password, dsn = folder / "kafka.toml", folder / "dsn"
    secret = SECRETS["job kafka"]
    password.write_text(f'"sasl.password" = "{secret}"\n', "utf-8")
    dsn.write_text(servers.postgres.secured_dsn("job", SECRETS["job postgres"]), "utf-8")
    return {
        "OUTBOX_POSTGRES__DSN_FILE": str(dsn),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": servers.kafka.secured_servers,
        "OUTBOX_KAFKA__OPTIONS": json.dumps(servers.kafka.options(**{"sasl.username": "job"})),
        "OUTBOX_KAFKA__SECRET_OPTIONS_FILE": str(password),
    }


def publisher_from_environment(servers: Servers) -> dict[str, str]:
    """Settings of the publisher: each secret in a variable."""
    secret = {"sasl.username": "publisher", "sasl.password": SECRETS["publisher kafka"]}
    return {
        "OUTBOX_POSTGRES__DSN": servers.postgres.secured_dsn("publisher", SECRETS["publisher postgres"]),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": servers.kafka.secured_servers,
        "OUTBOX_KAFKA__OPTIONS": json.dumps(servers.kafka.options(**secret)),
    }


def forget_open_sessions(pipeline: Pipeline) -> None:
    """Delete what the workers keep, and not Spark's log beside it."""
    for folder in pipeline.cache.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)


class Scanned:
    """What was found in all looks."""

    def __init__(self, pipeline: Pipeline, folder: Path, given: Path) -> None:
        """`folder`: of the pipeline's files; `given`: where the user has put secrets."""
        self._pipeline, self._folder, self._given = pipeline, folder, given
        self.spilled = self.pickled = False
        """Whether Spark wrote a broadcast to disk; whether one of them was a task's function."""

    def look(self) -> None:
        """Search all files of both services, and what the system shows of their processes."""
        pipeline = self._pipeline
        for folder in (self._folder, pipeline.scratch):
            assert list(secrets_in_files(folder, SECRETS, but=[self._given])) == []
        for path, content in chain(contents(pipeline.scratch), contents(self._folder)):
            self.spilled |= path.name.startswith("broadcast_")
            self.pickled |= b"AssemblyTask" in content
        assert on_command_lines(psutil.Process().children(recursive=True), SECRETS) == []
        assert in_environments(pipeline.job.processes(), SECRETS) == []

    def take(self, page: str, content: bytes) -> None:
        """Search what was answered."""
        assert [whose for whose, secret in SECRETS.items() if secret.encode() in content] == [], page
