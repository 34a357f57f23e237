"""The table of a fault matrix: declared cells, what each was found to be, printed by pytest and written to a page of its service.

Knows nothing of any service: each has a page, declares its groups of cells and fills them in.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Group as Tables
from rich.console import RenderableType
from rich.table import Table

from service.fault_points import POINTS

NOT_RUN = "not run"
HELD = "ok"


@dataclass(frozen=True)
class MatrixPage:
    """What a service's page says around its tables."""

    file: str
    head: str
    """Markdown with the places {date}, {count} and {servers}."""
    fault: str = "fault point"
    """Heading of the column that names the fault."""


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

    def write(self, folder: Path) -> str:
        """Write the page if every cell held; return a line that says what became of it."""
        file = folder / self.page.file
        if not self.is_green:
            return f"not written to {file}: not every cell held"
        file.write_text(self.markdown(), "utf-8")
        return f"written to {file}"

    def _count(self) -> str:
        held = sum(row.result == HELD for row in self.rows)
        return f"{len(self.rows)} cells, {held} ok"

    def markdown(self) -> str:
        """The page."""
        servers = ", ".join(f"{name} {version}" for name, version in self.servers.items())
        head = self.page.head.format(
            date=f"{datetime.now(UTC):%F}",
            count=self._count(),
            servers=f"{servers}, Python {platform.python_version()}",
        )
        parts = [head]
        for group in self.groups:
            parts.append(
                f"## {group.title}\n\nWhole verdict: {group.verdict}\n\n"
                f"| situation | {self.page.fault} | where | action | found after the fault | then | result |\n"
                "| --- | --- | --- | --- | --- | --- | --- |\n"
                + "".join(
                    f"| {row.situation} | {row.place} | {row.where} | {row.action} | {row.found} | {row.then} | {row.result} |\n"
                    for row in group.rows
                )
            )
        return "\n".join(parts)


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
