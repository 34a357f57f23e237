"""docs/commands.md and docs/commands.txt say what `--help` says."""

import re
import subprocess
import sys

import pytest

from tests.support.pages.commands import SHARED, markdown, texts
from tests.support.paths import ROOT

PAGE, TEXTS = ROOT / "docs" / "commands.md", ROOT / "docs" / "commands.txt"


def test_the_page_and_the_texts_are_what_the_commands_say() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run `make docs`"
    assert TEXTS.read_text("utf-8") == texts(), "run `make docs`"


@pytest.mark.parametrize(
    ("heading", "arguments"),
    [
        ("outbox-migrate check", ["db.cli", "check"]),
        ("publisher lanes set", ["publisher", "lanes", "set"]),
        ("spark-job savepoint restore", ["spark_job", "savepoint", "restore"]),
    ],
    ids=str,
)
def test_a_command_says_the_same_by_itself(heading: str, arguments: list[str]) -> None:
    """But for the name that it was called by, and the lines' width."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    block = (
        TEXTS.read_text("utf-8").partition(f"\n{heading}\n{'=' * len(heading)}\n\n")[2].partition("\n\n\n")[0]
    )
    own, _, shared = block.partition("\n  Also ")
    said = " ".join(done.stdout.split("[OPTIONS]")[1].split())
    for option in shared.rstrip(".\n").split(", "):
        said, count = re.subn(rf"(-\w, )?{option} (<path> )?{re.escape(SHARED[option])} ?", "", said)
        assert count == 1, option
    said = said.removesuffix("--help Show this message and exit.").rstrip().removesuffix("Options:").rstrip()
    assert own.split("[OPTIONS]")[-1].split() == said.split()


def test_hidden_commands_are_not_shown() -> None:
    assert "publisher find" not in PAGE.read_text("utf-8") + TEXTS.read_text("utf-8")
