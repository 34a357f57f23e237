"""Every command names a Postgres on another machine that it reaches unprotected, once and beside its answer."""

import json

import pytest
from psycopg.conninfo import make_conninfo

from tests.support.processes.commands import run_command

NO_LOOPBACK = "0.0.0.0"
"""Leads to this machine nevertheless."""


@pytest.mark.parametrize(
    "line",
    [
        "db.cli status --json",
        "publisher lanes --json",
        "publisher parked list --json",
        "publisher audit --json",
        "publisher erase a --dry-run --json",
        "spark_job dead-letters list --json",
        "spark_job savepoint list --json",
    ],
)
def test_a_command_names_it_on_stderr(database: str, line: str) -> None:
    package, *arguments = line.split()
    variables = {"OUTBOX_POSTGRES__DSN": make_conninfo(database, host=NO_LOOPBACK, sslmode="prefer")}
    done = run_command(package, *arguments, variables=variables)
    assert json.loads(done.stdout) is not None
    assert done.stderr.count("connection_unprotected") == 1, done.stderr
