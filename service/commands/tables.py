"""Tables of every command: plain columns and whole values.

Values are never truncated. A pipe gets one line for each row, so that grep finds it. On a terminal that is too narrow for a table, each row
is a block with one line for each column, like psql's expanded display.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from service.commands.output import printable_text
from service.printable import printable

Cell = str | int | datetime | Text | None
"""An int is right-aligned with thousands separators; an id is passed as str. None is empty."""

_GAP = "  "
_LEAST_WRAPPED = 20


@dataclass
class _Row:
    cells: list[Text]
    note: str
    block: str


@dataclass
class Table:
    """Rows under named columns."""

    columns: Sequence[str]
    wrap_last: bool = False
    """Whether the last column is prose, which a terminal wraps."""
    _rows: list[_Row] = field(default_factory=list)
    _numbers: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        """A column counts as numeric until one of its cells is not a number."""
        self._numbers = [True] * len(self.columns)

    def add(self, *cells: Cell, note: str = "", block: str = "") -> None:
        """Add a row. `note` (prose, wrapped on a terminal) and `block` (verbatim) are printed below it, indented."""
        for index, cell in enumerate(cells):
            self._numbers[index] &= cell is None or isinstance(cell, int)
        texts = [_text(cell) for cell in cells]
        self._rows.append(_Row(texts, note, block))

    def print(self, out: Console) -> None:
        """Print the table, only its header if it has no rows."""
        widths = [
            max([len(name), *(row.cells[index].cell_len for row in self._rows)])
            for index, name in enumerate(self.columns)
        ]
        width = out.width if out.is_terminal else None
        fixed = widths[:-1] if self.wrap_last else widths
        needed = sum(fixed) + len(_GAP) * (len(widths) - 1) + (_LEAST_WRAPPED if self.wrap_last else 0)
        if width is not None and needed > width:
            self._print_blocks(out)
        else:
            self._print_rows(out, widths)

    def _print_rows(self, out: Console, widths: list[int]) -> None:
        out.print(self._line([Text(name) for name in self.columns], widths), style="bold")
        for row in self._rows:
            cells = list(row.cells)
            rest: list[str] = []
            if self.wrap_last:
                first, *rest = _wrapped(cells[-1].plain, out, sum(widths[:-1]) + len(_GAP) * len(widths[:-1]))
                cells[-1] = Text(first, cells[-1].style)
            out.print(self._line(cells, widths))
            for line in rest:
                out.print(line)
            _print_below(out, row)

    def _line(self, cells: list[Text], widths: list[int]) -> Text:
        line = Text()
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            padding = " " * (width - cell.cell_len)
            line.append(padding if self._numbers[index] else "").append_text(cell)
            if index + 1 < len(cells):
                line.append(("" if self._numbers[index] else padding) + _GAP)
        return line

    def _print_blocks(self, out: Console) -> None:
        for number, row in enumerate(self._rows):
            if number:
                out.print()
            print_fields(out, zip(self.columns, row.cells, strict=True))
            _print_below(out, row)


def print_fields(out: Console, fields: Iterable[tuple[str, Cell]]) -> None:
    """Print named values, one below the other, except those that are None."""
    found = [(printable(name), _text(value)) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in found), default=0)
    for name, value in found:
        first, *rest = _wrapped(value.plain, out, width + len(_GAP))
        # Wrapping loses a style that covers only part of the value.
        shown = Text(first, value.style) if rest else value
        out.print(Text(f"{name:<{width}}{_GAP}").append_text(shown))
        for line in rest:
            out.print(line)


def _text(cell: Cell) -> Text:
    match cell:
        case None:
            return Text()
        case Text():
            return printable_text(cell)
        case int():
            return Text(f"{cell:,}")
        case datetime():
            return Text(f"{cell.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
        case str():
            return Text(printable(cell))


def _print_below(out: Console, row: _Row) -> None:
    for line in row.note.splitlines():
        first, *rest = _wrapped(printable(line), out, len(_GAP))
        out.print(_GAP + first)
        for more in rest:
            out.print(more)
    if row.block:
        out.print(textwrap.indent(printable(row.block, keep="\n\t"), _GAP, lambda _: True))


def _wrapped(text: str, out: Console, indent: int) -> list[str]:
    """Return prose as lines for a terminal, indented after the first; as one line without a terminal."""
    if not out.is_terminal or out.width - indent < _LEAST_WRAPPED:
        return [text]
    lines = textwrap.wrap(text, out.width - indent, break_long_words=False, break_on_hyphens=False)
    return [lines[0], *(" " * indent + line for line in lines[1:])] if lines else [text]
