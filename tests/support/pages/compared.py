"""The tables of a page of the documentation, to compare with what a test finds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.paths import ROOT

Row = Mapping[str, str]

_MARKUP = re.compile(r"[`*]")
_COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
_TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class ComparedPage:
    """A page's tables. A table is known by its first column; tables of one kind are parts of one table."""

    path: str
    rows: dict[tuple[str, str], Row]
    """{(first column, its cell): {column: cell}}"""
    commands: list[str]
    """What stands behind a `$` in its code blocks, in the page's order; those that were played are taken out."""
    texts: list[str]
    """Its code blocks without commands."""
    played: set[tuple[str, str]] = field(default_factory=set)
    differences: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str) -> "ComparedPage":
        """Parse the page at this path below the project's root. A row that is there twice would not be compared: an error."""
        rows: dict[tuple[str, str], Row] = {}
        header: list[str] = []
        text = (ROOT / path).read_text("utf-8")
        for line in text.splitlines():
            if not line.startswith("|"):
                header = []
                continue
            cells = [_MARKUP.sub("", cell).strip() for cell in line.strip("|").split("|")]
            if not header:
                header = cells
            elif not set("".join(cells)) <= set("-: "):
                place = (header[0], cells[0])
                assert place not in rows, f"{path} has {place} twice"
                assert len(cells) == len(header), f"{path}: {line} has {len(cells)} cells of {len(header)}"
                rows[place] = dict(zip(header, cells, strict=True))
        return cls(path, rows, _COMMAND.findall(text), _TEXT.findall(text))

    def column(self, kind: str, column: str) -> list[str]:
        """A column of all rows of a kind, in the page's order."""
        return [row[column] for (key, _), row in self.rows.items() if key == kind]

    def compare(self, kind: str, key: str, found: Row) -> None:
        """Compare a row with what was found, and remember what differs. Columns that were not looked for are prose."""
        self.played.add((kind, key))
        row = self.rows.get((kind, key))
        if row is None:
            self.differences.append(f"{kind} {key}: not on the page, found {dict(found)}")
            return
        self.differences += [
            f"{kind} {key}, {column!r}: the page says {row.get(column)!r}, found {cell!r}"
            for column, cell in found.items()
            if row.get(column) != cell
        ]

    def next_command(self, command: str) -> list[str]:
        """Return the words after the program's name of the page's next command, which must be this one."""
        assert self.commands, f"{self.path} says nothing of {command}"
        assert self.commands.pop(0) == command
        return command.split()[1:]

    def assert_true(self) -> None:
        """Fail unless every row of the kinds that the test knows was compared and none differed."""
        kinds = {kind for kind, _ in self.played}
        unplayed = [place for place in self.rows if place[0] in kinds and place not in self.played]
        assert not self.differences, "\n".join([f"{self.path} is wrong:", *self.differences])
        assert not unplayed, f"{self.path} has rows that the test never looked at: {unplayed}"
        assert not self.commands, f"{self.path} has commands that the test never played: {self.commands}"
