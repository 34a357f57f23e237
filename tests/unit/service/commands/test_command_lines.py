"""Each command line lists its commands without importing them, and says of each what it says itself."""

import subprocess
import sys

import pytest
import typer

from db.cli import app as outbox_migrate
from devstack.cli import app as devstack
from publisher.cli import app as publisher
from service.commands import version
from service.commands.main import DeferredCommand
from spark_job.cli import app as spark_job

APPS = {"spark_job": spark_job, "publisher": publisher, "db": outbox_migrate, "devstack": devstack}
HEAVY = {
    "pyspark",
    "pyarrow",
    "numpy",
    "pandas",
    "confluent_kafka",
    "psycopg",
    "pydantic",
    "structlog",
    "psutil",
}


@pytest.mark.parametrize("package", APPS)
def test_help_and_completion_import_nothing_that_a_command_needs_to_run(package: str) -> None:
    look = f"import sys, {package}.cli; print(*sorted({HEAVY!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


@pytest.mark.parametrize("app", APPS.values(), ids=APPS)
def test_the_list_of_commands_says_of_each_what_its_own_help_says(app: typer.Typer) -> None:
    commands = typer.main.get_group(app).commands
    deferred = [command for command in commands.values() if isinstance(command, DeferredCommand)]
    assert len(deferred) > 3
    for command in deferred:
        itself = command.load()
        assert itself.name == command.name
        assert command.help == itself.help.partition("\n\n")[0].replace("\n", " ")


def test_modules_that_were_copied_without_metadata_have_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_DISTRIBUTION", "no-such-distribution")
    assert version.installed_version() == "unknown"
