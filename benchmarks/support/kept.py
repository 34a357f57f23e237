"""Rounds that are also kept in a file of results: a run that was cut off goes on, and docs/performance.md shows them."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.suite.results import Results, ResultsError
from benchmarks.support.report import Measured, Report
from benchmarks.support.rounds import FailedRounds

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
        self.failures = FailedRounds()
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

    def turns(self, contenders: Sequence[str], rounds: int) -> list[str]:
        """Return whose rounds are missing until each has so many, in turn; who goes first alternates."""
        if self._results is None:
            return [
                one
                for number in range(rounds)
                for one in (contenders if number % 2 == 0 else contenders[::-1])
            ]
        names = {_name(whose): whose for whose in contenders}
        return [names[name] for name, _ in self._results.missing(list(names), rounds)]

    def add(self, whose: str, found: Measured, *, load_before: float) -> None:
        """Keep a round. `load_before`: the machine's load average when it began."""
        self._report.add(whose, found)
        if self._results is not None:
            self._results.add(_name(whose), found, load_before=load_before)

    def finish(self, page: Path | None, *, as_json: bool) -> None:
        """Print the report of the rounds of this run, and what failed. Raises typer.Exit with code 1 where anything did."""
        self._report.finish(page, as_json=as_json)
        self.failures.finish()


def _name(whose: str) -> str:
    return OURS if whose == "publisher" else whose
