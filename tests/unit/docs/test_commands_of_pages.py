"""The commands that the runbook and the answers to frequent questions name exist, with the options that they are given there."""

from pathlib import Path

import pytest

from tests.support.pages.commands import commands_of, wrong_with

PAGES = (Path("docs/runbook.md"), Path("docs/faq.md"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_exists(page: Path) -> None:
    named = commands_of(page)
    assert len(named) > 8
    assert [f"{command}: {wrong}" for command in named if (wrong := wrong_with(command))] == []


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
