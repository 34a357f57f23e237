"""One JSON file for each measurement: each round, where, when and how it was taken, and the medians. A run that was cut off goes on."""

import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import typer

from benchmarks.support.rounds import FailedRounds, screen

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "performance"
PAGE = ROOT / "docs" / "performance.md"
FORMAT = 1

Measured = Mapping[str, float]
"""One round: {measure: value}. Infinite where something never came; in JSON that is null."""


@dataclass(frozen=True)
class Spread:
    """What a measure was over its rounds. Infinite where something never came."""

    median: float
    least: float
    greatest: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value; the median of an even number is the mean of the two in the middle."""
    return Spread(median(values), min(values), max(values), len(values))


class ResultsError(Exception):
    """A file of results cannot be continued."""


class Results:
    """The rounds of one measurement. Each is in the file as soon as it is taken."""

    def __init__(
        self,
        path: Path,
        *,
        title: str,
        labels: Mapping[str, str],
        parameters: Mapping[str, object],
    ) -> None:
        """Continue the file at `path`, or begin it. `labels`: {measure: name with unit}, in the order of the table.

        Raises ResultsError where it has rounds that were taken with other parameters: they are not comparable.
        """
        self.path = path
        self._document: dict[str, Any] = {
            "format": FORMAT,
            "measurement": path.stem,
            "title": title,
            "labels": dict(labels),
            "parameters": json.loads(json.dumps(parameters)),
            "rounds": [],
        }
        if path.exists():
            before = json.loads(path.read_text("utf-8"))
            if before.get("rounds") and before.get("parameters") != self._document["parameters"]:
                raise ResultsError(
                    f"{path} has rounds with other parameters ({before.get('parameters')}, not {self._document['parameters']}): "
                    "delete it, or name another folder with --results"
                )
            self._document["rounds"] = before.get("rounds", [])

    def taken(self, contender: str, point: str = "") -> int:
        """How many rounds of this there are."""
        return sum(
            one["contender"] == contender and one["point"] == point for one in self._document["rounds"]
        )

    def add(self, contender: str, found: Measured, point: str = "", *, load_before: float) -> None:
        """Keep a round: in the file and on the screen."""
        self._document["rounds"].append(
            {
                "contender": contender,
                "point": point,
                "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                "commit": commit(),
                "command": shlex.join(["python", *sys.orig_argv[1:]]),
                "machine": machine(),
                "load_before": round(load_before, 2),
                "measured": {name: _finite(value) for name, value in found.items()},
            }
        )
        self._save()
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in found.items())
        screen.print(f"{self.path.stem}, {contender}{f', {point}' if point else ''}: {shown}", markup=False)

    def missing(
        self, contenders: Sequence[str], rounds: int, points: Sequence[str] = ("",)
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield (contender, points of which a round is still to be taken), turn by turn; who goes first alternates from round to round."""
        for number in range(rounds):
            for contender in contenders if number % 2 == 0 else contenders[::-1]:
                if left := [point for point in points if self.taken(contender, point) <= number]:
                    yield contender, left

    def _save(self) -> None:
        self._document["summary"] = summary(self._document)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(".json.new")
        scratch.write_text(json.dumps(self._document, indent=1) + "\n", "utf-8")
        scratch.replace(self.path)


@contextmanager
def measurement(
    folder: Path, name: str, title: str, labels: Mapping[str, str], parameters: Mapping[str, object]
) -> Iterator[tuple[Results, FailedRounds]]:
    """Continue the file `name`.json of the folder, or begin it; at the end, list the rounds that failed.

    Raises typer.BadParameter where the file cannot be continued, typer.Exit with code 1 where a round failed.
    """
    try:
        kept = Results(folder / f"{name}.json", title=title, labels=labels, parameters=parameters)
    except ResultsError as error:
        raise typer.BadParameter(str(error)) from None
    failures = FailedRounds()
    yield kept, failures
    failures.finish()


def values(document: Mapping[str, Any], contender: str, point: str, measure: str) -> list[float]:
    """Return a measure's value in each round that has it, infinite where it never came."""
    return [
        math.inf if (value := one["measured"][measure]) is None else value
        for one in document["rounds"]
        if one["contender"] == contender and one["point"] == point and measure in one["measured"]
    ]


def summary(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return median, least and greatest of each measure, for each contender and point in the order of their first round."""
    found = []
    for contender, point in dict.fromkeys((one["contender"], one["point"]) for one in document["rounds"]):
        measures = {}
        for measure in document["labels"]:
            if numbers := values(document, contender, point, measure):
                over = spread(numbers)
                measures[measure] = {
                    "median": _finite(over.median),
                    "min": _finite(over.least),
                    "max": _finite(over.greatest),
                }
        found.append({"contender": contender, "point": point, "measures": measures})
    return found


def commit() -> str:
    """The checkout's commit, with + where files differ from it; `unknown` without Git."""
    ran = subprocess.run(
        ["git", "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.strip() or "unknown"


def machine() -> str:
    """Cores, memory and system of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}"


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else float(f"{value:.6g}")
