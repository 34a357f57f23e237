"""A part of the integration suite on containers; `make integration-on-containers` runs all of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engine.engine import Engine
from tests.support.paths import ROOT
from tests.support.servers.choice import SERVERS_VARIABLE

# What a container could change: roles and constraints of another Postgres, transactions through another address.
PART = (
    "tests/containers/test_servers.py",
    "tests/integration/db/test_constraints.py",
    "tests/integration/db/test_roles.py",
    "tests/integration/spark_job/sink/batch",
    "tests/integration/publisher/delivery/test_delivery.py",
)


# The first run builds images.
@pytest.mark.containers
@pytest.mark.timeout(1200)
def test_a_part_of_the_integration_suite_passes_on_containers(server_engine: Engine, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not faults",
        f"--basetemp={tmp_path / 'run'}",
        *PART,
    ]
    environment = {
        name: value for name, value in server_engine.environment.items() if not name.startswith("PYTEST_")
    }
    # Servers that somebody else runs would win over containers.
    for name in ("OUTBOX_POSTGRES__DSN", "OUTBOX_KAFKA__BOOTSTRAP_SERVERS", "OUTBOX_TEST_ENGINE"):
        environment.pop(name, None)
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {SERVERS_VARIABLE: "containers", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    last = result.stdout.strip().splitlines()[-1]
    assert result.returncode == 0, result.stdout
    assert re.fullmatch(r"\d+ passed.* in .*", last), last
