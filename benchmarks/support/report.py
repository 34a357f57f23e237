"""What a benchmark found: medians of its rounds side by side, as a table for people and as one line of JSON."""

import json
import math
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

Measured = Mapping[str, float]
"""One round: {measure: value}. Infinite where something never came."""

Page = Annotated[Path | None, typer.Option(help="Also put the table into this page.", exists=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the table.")]

screen = Console(stderr=True)


@dataclass
class Report:
    """All rounds of one benchmark, by whose they are."""

    name: str
    """Also that of its place in a page."""
    parameters: Mapping[str, object]
    labels: Mapping[str, str]
    """What each measure is called in the table, with its unit."""
    comparing: bool = True
    """Whether the table has a column with the ratio of the first to the last."""
    rounds: dict[str, list[Measured]] = field(default_factory=dict)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, whose: str, found: Measured) -> None:
        """Keep a round, and show it."""
        self.rounds.setdefault(whose, []).append(found)
        screen.print(
            f"{self.name}, {whose}: " + ", ".join(f"{k} {_number(v)}" for k, v in found.items()), markup=False
        )

    def medians(self, whose: str) -> dict[str, float]:
        """Median of each measure over the rounds."""
        rounds = self.rounds[whose]
        return {name: median(each[name] for each in rounds) for name in rounds[0]}

    def as_json(self) -> str:
        """One line. What is infinite is null."""
        document = {
            "benchmark": self.name,
            "parameters": self.parameters,
            "medians": {whose: _finite(self.medians(whose)) for whose in self.rounds},
            "rounds": {whose: [_finite(each) for each in found] for whose, found in self.rounds.items()},
            "machine": self._machine(),
        }
        return json.dumps(document)

    def as_table(self) -> str:
        """Markdown: a column for each whose rounds there are."""
        is_compared = self.comparing and len(self.rounds) > 1
        columns = {whose: self.medians(whose) for whose in self.rounds}
        heads = [*columns, *(["ratio"] if is_compared else [])]
        lines = [f"| {' | '.join(['', *heads])} |", "| --- |" + " ---: |" * len(heads)]
        for measure, label in self.labels.items():
            values = [of.get(measure) for of in columns.values()]
            cells = ["" if value is None else _number(value) for value in values]
            if is_compared:
                cells.append(_ratio(values[0], values[-1]))
            lines.append(f"| {label} | {' | '.join(cells)} |")
        return "\n".join([self._about(), "", *lines])

    def _about(self) -> str:
        counts = {len(found) for found in self.rounds.values()}
        how = "one round" if counts == {1} else f"medians of {max(counts, default=0)} rounds"
        given = ", ".join(
            f"{name} {_number(v) if isinstance(v, int | float) else v}" for name, v in self.parameters.items()
        )
        return f"{self._machine()}; {how}; {given}."

    def _machine(self) -> str:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        return (
            f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}, "
            f"load average before: {self.load_before:.1f}"
        )

    def finish(self, page: Path | None, *, as_json: bool) -> None:
        """Print the result, and put the table into a page where one is named."""
        if page is not None:
            page.write_text(filled(page.read_text("utf-8"), self.name, self.as_table()), "utf-8")
        print(self.as_json() if as_json else self.as_table())


def filled(page: str, name: str, text: str) -> str:
    """Return the page with this text between its marks `<!-- measured: NAME -->` and `<!-- end -->`. Raises ValueError without them."""
    marks = re.compile(rf"(<!-- measured: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    result, count = marks.subn(lambda found: f"{found[1]}{text}\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for {name!r}, not one")
    return result


def _ratio(one: float | None, other: float | None) -> str:
    if one is None or not other or math.isinf(one) or math.isinf(other):
        return ""
    return f"{one / other:.2f}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _finite(found: Measured) -> dict[str, float | None]:
    return {name: None if math.isinf(value) else round(value, 6) for name, value in found.items()}
