"""One command's rounds: those that the file does not have yet, one after the other, whatever becomes of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

from benchmarks.peers.contender import Contender
from benchmarks.peers.registry import contenders
from benchmarks.suite.load.workload import Bench
from benchmarks.suite.options import Asked
from benchmarks.suite.results import Measured, Results, measurement
from benchmarks.support.rounds import FailedRounds, announce
from benchmarks.support.servers import started_servers

START_S = 30.0
"""To start a contender and its servers, to stop them, and to check what it sent."""


@dataclass
class Campaign:
    """Who is measured, on which servers, and where the rounds are kept."""

    bench: Bench
    kept: Results
    contenders: Mapping[str, Contender]
    """By the name in tables."""
    rounds: int
    failures: FailedRounds = field(default_factory=FailedRounds)

    def announce(self, expected_s: Callable[[Sequence[str]], float], points: Sequence[str] = ("",)) -> None:
        """Say how long it will take. `expected_s`: of one turn of a contender at these points."""
        turns = list(self.kept.missing(list(self.contenders), self.rounds, points))
        announce(sum(expected_s(left) for _, left in turns), sum(len(left) for _, left in turns))

    def turns(self, points: Sequence[str] = ("",)) -> Iterator[tuple[Contender, list[str]]]:
        """Yield whose turn it is, and at which points a round of it is missing."""
        for name, left in self.kept.missing(list(self.contenders), self.rounds, points):
            yield self.contenders[name], left

    def each(self, measure: Callable[[Contender], Measured], *, expected_s: float) -> None:
        """Take the missing rounds of a measurement without points. `expected_s`: of one."""
        self.announce(lambda _: expected_s)
        for contender, _ in self.turns():
            with self.failures.tolerated(contender.name) as load:
                self.kept.add(contender.name, measure(contender), load_before=load)


@contextmanager
def campaign(
    asked: Asked,
    name: str,
    title: str,
    labels: Mapping[str, str],
    parameters: Mapping[str, object],
    *,
    transaction_timeout_s: int | None = None,
) -> Iterator[Campaign]:
    """Start servers, and yield what takes the rounds; at the end, list what failed.

    `name`: of the file. `labels`: {measure: name with unit}. Raises typer.BadParameter where the file cannot be continued or a contender
    is not known, typer.Exit with code 1 where a round failed.
    """
    try:
        found = contenders(
            asked.names,
            baseline=asked.baseline,
            settings=asked.settings,
            transaction_timeout_s=transaction_timeout_s,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with (
        measurement(asked.folder, name, title, labels, parameters) as (kept, failures),
        started_servers() as servers,
    ):
        yield Campaign(Bench(servers), kept, {one.name: one for one in found}, asked.rounds, failures)
