"""A fault matrix: declared cells and the result of each, printed by pytest and written as data, with a page that sums the data up.

Knows nothing of any service: each has a page, declares its groups of cells and fills them in.
"""

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Group as Tables
from rich.console import RenderableType
from rich.table import Table

from service.lifecycle.fault_points import POINTS

NOT_RUN = "not run"
HELD = "ok"
_VERDICT = re.compile(rf"^{HELD}: | delivered once, bytes and order as \w+")
"""What all verdicts of a page have: it stands in the head of their column."""


@dataclass(frozen=True)
class MatrixPage:
    """Where a service's results go, and what its page says above them."""

    file: str
    data: str
    """JSON file of every cell, a line each."""
    head: str
    """Markdown with the places {run} and {data}."""
    fault: str = "fault point"
    """Heading of the terminal's column that names the fault."""


@dataclass
class MatrixRow:
    """One cell as it is shown."""

    situation: str
    point: str
    action: str
    hit: int = 1
    found: str = ""
    then: str = ""
    result: str = NOT_RUN
    detail: str = ""
    """What the fault is, where `point` is not the name of a fault point."""

    @property
    def where(self) -> str:
        """Where the fault hits, in words."""
        return self.detail or POINTS[self.point]

    @property
    def place(self) -> str:
        """The point, and which time it is reached."""
        return self.point if self.hit == 1 else f"{self.point}, time {self.hit}"


@dataclass
class Group:
    """Cells that share an outbox, and the verdict on the whole of it."""

    title: str
    rows: list[MatrixRow]
    verdict: str = NOT_RUN

    @property
    def is_green(self) -> bool:
        """Whether every cell and the whole held."""
        return self.verdict.startswith(HELD) and all(row.result == HELD for row in self.rows)


@dataclass
class Matrix:
    """All groups of a service in a run."""

    page: MatrixPage
    groups: list[Group] = field(default_factory=list)
    servers: dict[str, str] = field(default_factory=dict)
    """{server: version}"""

    def declare(self, title: str, rows: Sequence[MatrixRow]) -> Group:
        """Add a group; what is declared and not filled in shows as not run."""
        self.groups.append(Group(title, list(rows)))
        return self.groups[-1]

    @property
    def is_green(self) -> bool:
        """Whether there is anything, and all of it held."""
        return bool(self.groups) and all(group.is_green for group in self.groups)

    @property
    def rows(self) -> list[MatrixRow]:
        """The cells of all groups."""
        return [row for group in self.groups for row in group.rows]

    def shown(self) -> RenderableType:
        """For the terminal: a table for each group, its verdict below."""
        return Tables(*(_table(group, self.page.fault) for group in self.groups), f"{self._count()}\n")

    def write(self, folder: Path, commit: str) -> str:
        """Write data and page if every cell held; return a line that says so or why not."""
        file, data = folder / self.page.file, folder / self.page.data
        if not self.is_green:
            return f"not written to {file}: not every cell held"
        record = self.record(commit)
        data.parent.mkdir(exist_ok=True)
        data.write_text(dumped(record), "utf-8")
        file.write_text(rendered(self.page, record), "utf-8")
        return f"written to {file} and {data}"

    def record(self, commit: str) -> dict[str, Any]:
        """The run as data: of which commit, when, with which servers, and every cell."""
        return {
            "date": f"{datetime.now(UTC):%F}",
            "commit": commit,
            "servers": {**self.servers, "Python": platform.python_version()},
            "groups": [
                {
                    "title": group.title,
                    "verdict": group.verdict,
                    "cells": [_cell(row) for row in group.rows],
                }
                for group in self.groups
            ],
        }

    def _count(self) -> str:
        held = sum(row.result == HELD for row in self.rows)
        return f"{len(self.rows)} cells, {held} ok"


def dumped(record: Mapping[str, Any]) -> str:
    """The record as JSON with one line for each cell."""
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items() if key != "groups"]
    groups = [
        f'{{"title": {json.dumps(group["title"])}, "verdict": {json.dumps(group["verdict"])}, "cells": [\n'
        + ",\n".join(json.dumps(cell) for cell in group["cells"])
        + "]}"
        for group in record["groups"]
    ]
    return "{" + ",\n".join([*head, '"groups": [\n' + ",\n".join(groups) + "]"]) + "}\n"


def rendered(page: MatrixPage, record: Mapping[str, Any]) -> str:
    """The page of a record: a line for each group."""
    groups = record["groups"]
    results = [cell["result"] for group in groups for cell in group["cells"]]
    servers = ", ".join(f"{name} {version}" for name, version in record["servers"].items())
    run = f"{len(results)} cells, {results.count(HELD)} ok; {record['date']}, commit {record['commit']}, {servers}"
    return page.head.format(run=run, data=page.data) + (
        "\n| group | action | cells | delivered once, bytes and order as expected |\n| --- | --- | ---: | --- |\n"
        + "".join(
            f"| {group['title']} | {', '.join(dict.fromkeys(cell['action'] for cell in group['cells']))}"
            f" | {len(group['cells'])} | {_VERDICT.sub('', group['verdict'])} |\n"
            for group in groups
        )
    )


def _cell(row: MatrixRow) -> dict[str, str]:
    shown = asdict(row) | {"fault": row.place, "where": row.where}
    return {key: shown[key] for key in ("situation", "fault", "where", "action", "found", "then", "result")}


def _table(group: Group, fault: str) -> Table:
    table = Table(
        title=group.title, caption=_coloured(group.verdict), title_justify="left", caption_justify="left"
    )
    for column in ("situation", fault, "action", "found after the fault", "then", "result"):
        table.add_column(column, overflow="fold")
    for row in group.rows:
        table.add_row(row.situation, row.place, row.action, row.found, row.then, _coloured(row.result))
    return table


def _coloured(result: str) -> str:
    return f"[{'green' if result.startswith(HELD) else 'red'}]{result}[/]"
