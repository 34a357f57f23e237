"""A document as Markdown: how it was measured, and a table of medians with their spread and the ratio to ours."""

import math

from benchmarks.suite.report.documents import Document
from benchmarks.suite.results import Spread

_COUNTS = ("missing", "twice", "strange", "out_of_order", "kills", "sessions", "expected", "behind")
"""Measures of which a ratio says nothing."""


def table(document: Document) -> str:
    """Without points: a row for each measure, a column for each contender. With points: a row for each of them and each contender."""
    text = _by_point(document) if document.points != [""] else _by_measure(document)
    return f"{text}\n\n{about(document)}"


def about(document: Document) -> str:
    """When, where, at which commit, with which commands, and what the cells mean."""
    dates = sorted({one[:10] for one in document.all_of("date")})
    loads = document.all_of("load_before")
    counts = {
        number
        for contender in document.contenders
        for point in document.points
        if (
            number := sum(
                one["contender"] == contender and one["point"] == point for one in document.content["rounds"]
            )
        )
    }
    parts = [
        " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "",
        "commit " + ", ".join(document.all_of("commit")) if document.all_of("commit") else "",
        "; ".join(document.all_of("machine")),
        f"load average before {min(loads):.1f} to {max(loads):.1f}" if loads else "",
        "one round" if counts == {1} else f"{_range(min(counts), max(counts))} rounds",
        ", ".join(f"{name} {value}" for name, value in document.content["parameters"].items()),
    ]
    lines = [f"<sub>{'; '.join(filter(None, parts))}.", "Cells: median (least to greatest)"]
    if len(document.contenders) > 1:
        lines[-1] += f", and {document.contenders[0]} as a multiple of it"
    lines[-1] += "."
    commands = document.all_of("command")
    if commands:
        lines.append("Commands: " + ", ".join(f"`{one}`" for one in commands) + ".")
    return " ".join(lines) + "</sub>"


def _by_measure(document: Document) -> str:
    contenders = document.contenders
    lines = [_row(["", *contenders]), _row(["---", *["---:"] * len(contenders)])]
    for measure, label in document.labels.items():
        lines.append(_row([label, *(_cell(document, contender, "", measure) for contender in contenders)]))
    return "\n".join(lines)


def _by_point(document: Document) -> str:
    labels = document.labels
    lines = [_row(["", *labels.values()]), _row(["---", *["---:"] * len(labels)])]
    several = len(document.contenders) > 1
    for point in document.points:
        for contender in document.contenders:
            if any(document.spread(contender, point, measure) for measure in labels):
                head = f"{point}, {contender}" if several else point
                lines.append(_row([head, *(_cell(document, contender, point, one) for one in labels)]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(document: Document, contender: str, point: str, measure: str) -> str:
    found = document.spread(contender, point, measure)
    if found is None:
        return ""
    text = number(found.median)
    if found.rounds > 1 and found.least != found.greatest:
        text += f" ({number(found.least)} to {number(found.greatest)})"
    first = document.contenders[0]
    if contender != first and measure not in _COUNTS:
        text += _ratio(document.spread(first, point, measure), found)
    return text


def _ratio(ours: Spread | None, theirs: Spread) -> str:
    if ours is None or not theirs.median or math.isinf(ours.median) or math.isinf(theirs.median):
        return ""
    return f"<br>x {ours.median / theirs.median:.2f}"


def _range(least: int, greatest: int) -> str:
    return str(least) if least == greatest else f"{least} to {greatest}"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    if math.isinf(value):
        return "never"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
