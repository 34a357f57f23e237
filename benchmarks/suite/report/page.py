"""docs/performance.md: a text written by hand, with marks between which the tables and pictures of the JSON files are."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite.report.chart import Bar, Group, svg
from benchmarks.suite.report.documents import Document, documents
from benchmarks.suite.report.tables import table
from benchmarks.suite.results import PAGE, RESULTS

OTHERS = "others"
"""The place of documents that have none of their own."""

_EMPTY = f"""Cells: median (least to greatest), and below it ours as a multiple of it.

<!-- measured: {OTHERS} -->
<!-- end -->
"""

_MARK = re.compile(r"<!-- measured: ([\w.-]+) -->")


@dataclass(frozen=True)
class Picture:
    """Which measures of a document are drawn."""

    title: str
    unit: str
    measures: tuple[str, ...]
    logarithmic: bool = False


PICTURES: Mapping[str, tuple[Picture, ...]] = {
    "throughput": (
        Picture("A backlog, warm and from the start of the processes", "sessions/s", ("warm", "whole")),
        Picture("CPU of an input event", "us, all parts but Kafka; Kafka", ("cpu", "cpu_kafka")),
    ),
    "latency": (
        Picture("Latency at sessions/s: p50, p99", "s", ("p50", "p99"), logarithmic=True),
        Picture("Cores at sessions/s", "cores, all parts but Kafka", ("cores",), logarithmic=True),
    ),
    "capacity": (Picture("Highest rate held with p99 below a second", "sessions/s", ("rate",)),),
    "growth": (Picture("CPU of an input event as things grow", "us", ("cpu",), logarithmic=True),),
    "faults": (Picture("kill -9 to the next new output", "s", ("seconds",)),),
    "catch-up": (Picture("Catching up after an outage", "sessions/s", ("rate",)),),
}


def rendered(page: str, folder: Path, address: str) -> tuple[str, dict[str, str]]:
    """Return the page with what the folder's JSON files say, and the pictures by file name.

    `address`: of the folder, as the page links it.
    """
    found = documents(folder)
    places = _MARK.findall(page)
    pictures: dict[str, str] = {}
    texts = dict.fromkeys(places, "Not measured yet.")
    others = []
    for name, document in found.items():
        drawn = _drawn(document)
        pictures |= drawn
        images = [f"![{document.title}]({address}/{file})" for file in drawn]
        text = "\n\n".join([*images, table(document)])
        if name in texts:
            texts[name] = text
        else:
            others.append(f"### {document.title}\n\n{text}")
    if OTHERS in texts:
        texts[OTHERS] = "\n\n".join(others) or "There are none."
    elif others:
        raise ValueError(
            f"the page has no place for {', '.join(found.keys() - texts.keys())}, nor one for `{OTHERS}`"
        )
    for name, text in texts.items():
        page = filled(page, name, text)
    return page, pictures


def filled(page: str, name: str, text: str) -> str:
    """Return the page with this text between its marks `<!-- measured: NAME -->` and `<!-- end -->`. Raises ValueError without them."""
    marks = re.compile(rf"(<!-- measured: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    result, count = marks.subn(lambda found: f"{found[1]}{text}\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for {name!r}, not one")
    return result


def of(folder: Path) -> Path:
    """Return the page of a folder of results: docs/performance.md for its own, one in the folder for any other."""
    return PAGE if folder.resolve() == RESULTS.resolve() else folder / PAGE.name


def write(page: Path, folder: Path) -> list[Path]:
    """Render the page and its pictures where they are; return the files. A page that is not there gets everything there is."""
    address = os.path.relpath(folder.resolve(), page.resolve().parent)
    before = page.read_text("utf-8") if page.exists() else _EMPTY
    text, pictures = rendered(before, folder, address)
    page.write_text(text, "utf-8")
    for name, picture in pictures.items():
        (folder / name).write_text(picture, "utf-8")
    return [page, *(folder / name for name in pictures)]


def _drawn(document: Document) -> dict[str, str]:
    """{file name: picture}"""
    found = {}
    for number, picture in enumerate(PICTURES.get(document.name, ())):
        groups = _groups(document, picture)
        # What never came has no length, and a picture of nothing else says nothing.
        if any(bar.median > 0 and math.isfinite(bar.median) for group in groups for bar in group.bars):
            file = f"{document.name}{f'-{number + 1}' if number else ''}.svg"
            found[file] = svg(picture.title, picture.unit, groups, logarithmic=picture.logarithmic)
    return found


def _groups(document: Document, picture: Picture) -> list[Group]:
    groups = []
    for point in document.points:
        for measure in picture.measures:
            bars = [
                Bar(contender, over.median, over.least, over.greatest)
                for contender in document.contenders
                if (over := document.spread(contender, point, measure)) is not None
            ]
            if bars:
                name = " ".join(filter(None, (point, measure if len(picture.measures) > 1 else "")))
                groups.append(Group(name, bars))
    return groups
