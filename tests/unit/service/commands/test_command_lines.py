"""Each command line lists its commands without importing them, and says of each what it says itself."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

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


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield each command below another one with its full name."""
    itself = command.load() if isinstance(command, DeferredCommand) else command
    yield name, itself
    for each, inner in getattr(itself, "commands", {}).items():
        yield from leaves(f"{name} {each}", inner)


COMMANDS = [
    each
    for name, app in APPS.items()
    if name != "devstack"  # its `psql` becomes another program
    for each in leaves(name, typer.main.get_group(app))
]


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_help_says_every_word_that_was_written_for_it(
    name: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names in brackets, of tables of the settings, are no markup."""
    listed = [each for each in getattr(command, "commands", {}).values() if not each.hidden]
    inner = [each.help.partition("\n\n")[0] for each in listed]
    written = [command.help, *inner, *(getattr(each, "help", None) for each in command.params)]
    command.main(["--help"], prog_name=name, terminal_width=200, standalone_mode=False)
    words = Counter(re.findall(r"\S+", capsys.readouterr().out))
    for text in filter(None, written):
        assert not Counter(re.findall(r"\S+", text)) - words, text


def test_modules_that_were_copied_without_metadata_have_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_DISTRIBUTION", "no-such-distribution")
    assert version.installed_version() == "unknown"
