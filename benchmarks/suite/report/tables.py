"""A document as Markdown: a table of medians with their spread and the ratio to ours, and when and where they were measured.

The table has what is compared. Parts of a sum, checks of the load and commands stay in the document.
"""

import math
from collections.abc import Mapping

from benchmarks.suite.report.documents import Document
from benchmarks.suite.results import Spread

_COUNTS = ("missing", "twice", "strange", "out_of_order", "kills", "sessions", "expected", "behind")
"""Measures of which a ratio says nothing."""
_ERRORS = ("missing", "twice", "strange", "out_of_order")
"""Measures that are a sentence, and not a row each, where every round has 0."""
_NOT_SHOWN: Mapping[str, tuple[str, ...]] = {
    "throughput": (
        "events_s", "cpu_job_jvm", "cpu_job_workers", "cpu_job_driver", "cpu_executors", "wal_bytes", "stored_bytes", "backlog",
        "memory_job", "memory_executors", "memory_publisher", "memory_postgres", "memory_kafka",
    ),
    "latency": ("p999", "sessions", "sent_s", "behind_s"),
    "capacity": ("sessions", "behind"),
    "growth": ("cpu_session", "memory_event"),
    "relay": ("transactions", "holders"),
}  # fmt: skip
"""{document: measures that only its JSON file has}"""


def table(document: Document) -> str:
    """Without points: a row for each measure, a column for each contender. With points: a row for each of them and each contender."""
    text = _by_point(document) if document.points != [""] else _by_measure(document)
    return f"{text}\n\n{about(document)}"


def about(document: Document) -> str:
    """When and where, at which commit, and which errors no round had."""
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
    none = ", ".join(label for measure, label in document.labels.items() if _never(document, measure))
    return f"<sub>{'; '.join(filter(None, parts))}.{f' None in any round: {none}.' if none else ''}</sub>"


def _shown(document: Document) -> dict[str, str]:
    """{measure: name with unit} of the table."""
    left_out = _NOT_SHOWN.get(document.name, ())
    return {
        measure: label
        for measure, label in document.labels.items()
        if measure not in left_out and not _never(document, measure)
    }


def _never(document: Document, measure: str) -> bool:
    return measure in _ERRORS and not any(
        one["measured"].get(measure, 0) for one in document.content["rounds"]
    )


def _by_measure(document: Document) -> str:
    contenders = document.contenders
    lines = [_row(["", *contenders]), _row(["---", *["---:"] * len(contenders)])]
    for measure, label in _shown(document).items():
        lines.append(_row([label, *(_cell(document, contender, "", measure) for contender in contenders)]))
    return "\n".join(lines)


def _by_point(document: Document) -> str:
    labels = _shown(document)
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
        text += f" ({number(found.least)}–{number(found.greatest)})"
    first = document.contenders[0]
    if contender != first and measure not in _COUNTS:
        text += _ratio(document.spread(first, point, measure), found)
    return text


def _ratio(ours: Spread | None, theirs: Spread) -> str:
    if ours is None or not theirs.median or math.isinf(ours.median) or math.isinf(theirs.median):
        return ""
    return f"<br>×{ours.median / theirs.median:.2f}"


def _range(least: int, greatest: int) -> str:
    return str(least) if least == greatest else f"{least} to {greatest}"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    if math.isinf(value):
        return "never"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
