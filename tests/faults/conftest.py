"""The matrix of a run, printed at its end; FAULT_TABLE=FILE writes it as a page too, if all of it held."""

import os
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pyspark
import pytest
from rich.console import Console

from devstack.databases import PostgresServer
from devstack.kafka import Kafka, KafkaServer
from tests.faults.matrix import Matrix
from tests.integration.publisher.harness import query

_MATRIX = pytest.StashKey[Matrix]()
_WIDTH = 160
_LOCK = Path(__file__).parents[2] / "devstack" / "jars.lock"


@pytest.fixture(scope="session")
def matrix(request: pytest.FixtureRequest, postgres: PostgresServer, kafka: KafkaServer) -> Matrix:
    """Of the whole run."""
    ((version,),) = query(postgres.dsn(), "SHOW server_version")
    servers = {"Postgres": version, "Kafka": _kafka_version(kafka), "Spark": pyspark.__version__}
    return request.config.stash.setdefault(_MATRIX, Matrix(servers=servers))


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
        r"^# root org\.apache\.kafka:kafka_[\d.]+:(\S+)", _LOCK.read_text("utf-8"), re.MULTILINE
    )
    return str(root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table; write the page."""
    matrix = config.stash.get(_MATRIX, None)
    if matrix is None:
        return
    text = StringIO()
    Console(file=text, width=_WIDTH, force_terminal=terminalreporter.hasmarkup).print(matrix.shown())
    terminalreporter.write(text.getvalue())
    page = os.environ.get("FAULT_TABLE")
    if page and matrix.is_green:
        Path(page).write_text(matrix.markdown(), "utf-8")
        terminalreporter.write_line(f"written to {page}")
    elif page:
        terminalreporter.write_line(f"not written to {page}: not every cell held")
