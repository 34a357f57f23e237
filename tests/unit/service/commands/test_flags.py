"""One style of flags: what both command lines have is written, shortened and explained alike."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperOption
from typer.main import get_command

from publisher.cli import app as publisher
from service.commands.main import DeferredCommand
from spark_job.cli import app as spark_job

SHARED = ("--config", "--json", "--yes", "--dry-run", "--limit")
SHORT = {"--config": "-c", "--yes": "-y"}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    command = command.load() if isinstance(command, DeferredCommand) else command
    yield name, command
    for sub_name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, f"{name} {sub_name}")


def options() -> Iterator[tuple[str, TyperOption]]:
    apps: dict[str, typer.Typer] = {"spark-job": spark_job, "publisher": publisher}
    for name, app in apps.items():
        for path, command in commands(get_command(app), name):
            for parameter in command.params:
                if isinstance(parameter, TyperOption):
                    yield path, parameter


@pytest.mark.parametrize("flag", SHARED)
def test_a_flag_of_both_services_has_one_short_form_and_one_sentence(flag: str) -> None:
    found = {path: option for path, option in options() if flag in option.opts}
    assert {path.split()[0] for path in found} == {"spark-job", "publisher"}
    assert len({option.help for option in found.values()}) == 1, found
    expected = {flag, SHORT[flag]} if flag in SHORT else {flag}
    assert {path: set(option.opts) for path, option in found.items()} == dict.fromkeys(found, expected)


@pytest.mark.parametrize("flag", ["--since", "--until"])
def test_a_moment_is_written_alike(flag: str) -> None:
    written = {(option.help or "").partition(": ")[2] for _, option in options() if flag in option.opts}
    assert len(written) == 1


def test_no_short_form_means_two_things() -> None:
    meanings: dict[str, set[str]] = {}
    for _, option in options():
        names = [name for name in option.opts if name.startswith("--")]
        for short in set(option.opts) - set(names):
            meanings.setdefault(short, set()).update(names)
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}
