"""The matrices of a run, printed at its end; FAULT_TABLES=FOLDER writes data and page of each too, if every cell held."""

import os
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pyspark
import pytest
from rich.console import Console

from benchmarks.suite.results import commit
from devstack.databases import PostgresServer
from devstack.kafka import Kafka, KafkaServer
from tests.support.faults.job_cells import PAGE
from tests.support.faults.matrix import Matrix
from tests.support.queries import query

_MATRICES = pytest.StashKey[list[Matrix]]()
_WIDTH = 160


@pytest.fixture(scope="session")
def servers(postgres: PostgresServer, kafka: KafkaServer) -> dict[str, str]:
    """{server: version}"""
    ((version,),) = query(postgres.dsn(), "SHOW server_version")
    return {"Postgres": version, "Kafka": _kafka_version(kafka)}


@pytest.fixture(scope="session")
def matrices(request: pytest.FixtureRequest) -> list[Matrix]:
    """What is printed at the end; each service's matrix adds itself."""
    return request.config.stash.setdefault(_MATRICES, [])


@pytest.fixture(scope="session")
def matrix(matrices: list[Matrix], servers: dict[str, str]) -> Matrix:
    """The job's, of the whole run."""
    matrices.append(Matrix(PAGE, servers=servers | {"Spark": pyspark.__version__}))
    return matrices[-1]


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Writes a line to the terminal while the test runs: a whole group takes minutes."""
    capture: Any = request.config.pluginmanager.get_plugin("capturemanager")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"  {line}", flush=True)

    return write


def _kafka_version(server: KafkaServer) -> str:
    """A broker tells its version to no client; the devstack's is the locked one."""
    if not isinstance(server, Kafka):
        return "of somebody else"
    (root,) = re.findall(
        r"^# root org\.apache\.kafka:kafka_[\d.]+:(\S+)", server.jars_lock().read_text("utf-8"), re.MULTILINE
    )
    return str(root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the tables; write data and pages."""
    folder = os.environ.get("FAULT_TABLES")
    for matrix in config.stash.get(_MATRICES, []):
        text = StringIO()
        Console(file=text, width=_WIDTH, force_terminal=terminalreporter.hasmarkup).print(matrix.shown())
        terminalreporter.write(text.getvalue())
        if folder:
            terminalreporter.write_line(matrix.write(Path(folder), commit()))
