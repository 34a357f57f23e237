"""Options that several commands have, and what they mean."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.suite.results import Results, ResultsError

Names = Annotated[
    str,
    typer.Option(
        "--contenders", help="Who is measured, in turn: names with commas between (see docs/benchmarks.md)."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that there shall be; those in the file count.")]
Folder = Annotated[Path, typer.Option("--results", help="Folder of the JSON files.")]
Baseline = Annotated[
    Path | None,
    typer.Option(help="Another checkout (a git worktree) to measure in turn, as `before`.", exists=True),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        help="A further setting of ours, such as JOB__MAX_EVENTS_PER_BATCH=300000; may be repeated."
    ),
]
Partitions = Annotated[int, typer.Option(min=1, help="Partitions of the input topic.")]


def command() -> list[str]:
    """How this process was called, as it can be called again."""
    return ["python", "-m", "benchmarks.suite", *map(shlex.quote, sys.argv[1:])]


def numbers(text: str) -> list[float]:
    """Numbers with commas between."""
    return [float(one) for one in text.split(",")]


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [one.strip() for one in text.split(",") if one.strip()]


def settings(given: list[str] | None) -> dict[str, str]:
    """Settings of ours, environment names without OUTBOX_."""
    found = {}
    for one in given or []:
        name, is_set, value = one.partition("=")
        if not is_set:
            raise typer.BadParameter(f"--setting {one}: NAME=VALUE is expected")
        found[name] = value
    return found


def results(
    folder: Path, name: str, title: str, labels: Mapping[str, str], parameters: Mapping[str, object]
) -> Results:
    """The file of a measurement; a usage error where it cannot be continued."""
    try:
        return Results(
            folder / f"{name}.json", title=title, labels=labels, parameters=parameters, command=command()
        )
    except ResultsError as error:
        raise typer.BadParameter(str(error)) from None
