"""Rounds that are also kept in a file of results: a run that was cut off goes on, and docs/performance.md shows them."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.suite.results import Results, ResultsError
from benchmarks.support.report import Measured, Report

ResultsFolder = Annotated[
    Path | None,
    typer.Option(help="Also keep the rounds in a file of this folder; those that are in it count."),
]
OURS = "ours"
"""Of the publisher in a file of results: the ratios there are to it."""


class KeptRounds:
    """A report's rounds, and the same in a file."""

    def __init__(self, report: Report, folder: Path | None, name: str, title: str) -> None:
        """`name`: of the file, without `.json`. Raises typer.BadParameter where the file has rounds with other parameters."""
        self._report = report
        self._results: Results | None = None
        if folder is None:
            return
        parameters: Mapping[str, object] = report.parameters
        command = ["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *map(shlex.quote, sys.argv[1:])]
        try:
            self._results = Results(
                folder / f"{name}.json",
                title=title,
                labels=report.labels,
                parameters=parameters,
                command=command,
            )
        except ResultsError as error:
            raise typer.BadParameter(str(error)) from None

    def turns(self, contenders: Sequence[str], rounds: int) -> Iterator[str]:
        """Yield whose round is next, until each has so many; who goes first alternates."""
        if self._results is None:
            for number in range(rounds):
                yield from contenders if number % 2 == 0 else contenders[::-1]
            return
        names = {_name(whose): whose for whose in contenders}
        for name, _ in self._results.missing(list(names), rounds):
            yield names[name]

    def add(self, whose: str, found: Measured, *, load_before: float | None = None) -> None:
        """Keep a round. `load_before`: the machine's load average when it began; that of now without."""
        self._report.add(whose, found)
        if self._results is not None:
            load = os.getloadavg()[0] if load_before is None else load_before
            self._results.add(_name(whose), found, load_before=load)


def _name(whose: str) -> str:
    return OURS if whose == "publisher" else whose
