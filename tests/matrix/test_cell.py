"""A run of `make test-matrix` is on the version that its row in docs/versions.md names."""

import os
import platform
import re
import subprocess
from collections.abc import Callable

import pytest

from devstack.kafka import Kafka
from spark_job.spark.jars import java_executable
from tests.support.queries import query
from tests.support.servers.choice import CELL_VARIABLE


def _postgres(request: pytest.FixtureRequest) -> str:
    ((version,),) = query(request.getfixturevalue("postgres").dsn(), "SHOW server_version")
    return str(version).split()[0]


def _kafka(request: pytest.FixtureRequest) -> str:
    """As the broker's log has it: it tells no client."""
    server = request.getfixturevalue("kafka")
    assert isinstance(server, Kafka)
    (version,) = set(re.findall(r"Kafka version: (\S+)", server.log.read_text("utf-8")))
    return str(version)


def _python(_: pytest.FixtureRequest) -> str:
    return platform.python_version()


def _java(_: pytest.FixtureRequest) -> str:
    """That which both Kafka and Spark run on."""
    said = subprocess.run([java_executable(), "-version"], capture_output=True, text=True, check=True).stderr
    (version,) = re.findall(r'version "(.+?)"', said)
    return str(version)


_FOUND: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "postgres": _postgres,
    "kafka": _kafka,
    "python": _python,
    "java": _java,
}


def test_the_run_is_on_the_version_of_its_cell(request: pytest.FixtureRequest) -> None:
    axis, _, version = os.environ[CELL_VARIABLE].partition("-")
    found = _FOUND[axis](request)
    # As the fixture record_property does, which pytest refuses beside the newer form of reports.
    request.node.user_properties.append(("version", found))
    assert f"{found}.".startswith(f"{version}.")
