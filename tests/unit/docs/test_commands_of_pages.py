"""The commands that the pages name exist, with the options that they are given there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from service.commands.main import DeferredCommand
from tests.support.pages.commands import APPS
from tests.support.pages.markdown import pages
from tests.support.paths import ROOT

_INLINE = re.compile(rf"`((?:{'|'.join(APPS)}) [a-z][^`]*)`")
_LINE = re.compile(rf"^(?:\$ )?((?:{'|'.join(APPS)}) [a-z].*)$", re.MULTILINE)


def commands_of(page: Path) -> list[str]:
    """Every command of ours on the page, in the text and in code blocks, each once."""
    text = (ROOT / page).read_text("utf-8")
    return sorted(
        {re.sub(r" +#.*", "", found).strip() for found in _INLINE.findall(text) + _LINE.findall(text)}
    )


def wrong_with(command: str) -> str:
    """Say what of the command there is not, nothing where all is. Words in capitals and in brackets stand for others."""
    name, *words = shlex.split(command)
    found: Any = typer.main.get_group(APPS[name])
    walked = [name]
    while words and not words[0].startswith("-"):
        inside = getattr(found, "commands", None)
        if not inside:
            break
        if words[0] not in inside:
            return f"{' '.join(walked)} has no command {words[0]}"
        walked.append(words.pop(0))
        found = inside[walked[-1]]
        found = found.load() if isinstance(found, DeferredCommand) else found
    known = set(_options(found))
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{' '.join(walked)} has no {', '.join(unknown)}" if unknown else ""


def _options(command: Any) -> Iterator[str]:
    yield "--help"
    for parameter in command.params:
        yield from parameter.opts
        yield from parameter.secondary_opts


# The changelog names commands that are gone, the architecture's page the names of connections.
OTHERS = (Path("CHANGELOG.md"), Path("docs/architecture.md"))


@pytest.mark.parametrize("page", [page for page in pages() if page not in OTHERS], ids=str)
def test_every_command_exists(page: Path) -> None:
    assert [f"{command}: {wrong}" for command in commands_of(page) if (wrong := wrong_with(command))] == []


def test_the_commands_of_a_page_are_found() -> None:
    assert {"publisher retention plan", "spark-job status"} <= set(commands_of(Path("docs/runbook.md")))


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("publisher status --json", ""),
        ("publisher parked requeue --all --yes", ""),
        ("publisher stats", "publisher has no command stats"),
        ("publisher status --jsno", "publisher status has no --jsno"),
        ("spark-job dead-letters repeat", "spark-job dead-letters has no command repeat"),
    ],
)
def test_a_command_that_is_not_there_is_found(command: str, wrong: str) -> None:
    assert wrong_with(command) == wrong
