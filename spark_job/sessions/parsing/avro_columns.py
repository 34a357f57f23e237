"""Read all values of one Avro schema together, by its plan: a few numpy operations for each field, however many records.

service/formats/avro/single.py reads values with long arrays or deep nesting, one by one. It comes to the same verdicts.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from service.formats.avro.plan import Fixed, Items, Node, Plan, Sequence, Sized, Union, Varint, Wrong
from service.formats.avro.single import NotOfSchemaError, SingleValue
from service.formats.budget import MORE, MORE_FOR_EACH_BYTE, MOST_MORE
from spark_job.sessions.settings import FieldPath

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_MOST_ITEMS = 16
_MOST_LEVELS = 12
_FEW_BRANCHES = 32


class Kept:
    """One field of all values."""

    def __init__(self, count: int) -> None:
        self.found = np.zeros(count, bool)
        self.begin = np.zeros(count, np.int64)
        """For a text: where it begins in the data. For a time: milliseconds. For an enum: its symbol's index."""
        self.size = np.zeros(count, np.int64)
        self.symbol = np.zeros(count, bool)
        """Whether the value is an enum's symbol."""
        self.text = np.zeros(count, bool)
        """Whether the value is a text, at `begin` in the data."""
        self.symbols: list[str] = []
        self._places: dict[tuple[str, ...], int] = {}

    def place(self, symbols: tuple[str, ...]) -> int:
        """Return the index in `symbols` at which this enum's symbols begin; append them if they are new."""
        found = self._places.setdefault(symbols, len(self.symbols))
        if found == len(self.symbols):
            self.symbols.extend(symbols)
        return found


class AvroColumns:
    """Walks once over all values."""

    def __init__(self, data: memoryview, begin: Int, end: Int, plan: Plan, wanted: list[FieldPath]) -> None:
        """`begin` and `end`: where each value begins and ends in `data`."""
        self._data = np.frombuffer(data, np.uint8)
        self._at, self._end = begin.copy(), end
        size = end - begin
        # As budget.most_values, for all values at once.
        self._values_left = size + np.minimum(MORE_FOR_EACH_BYTE * size + MORE, MOST_MORE)
        self.good: Bool = np.ones(len(begin), bool)
        """Whether each is a value of the schema with fields of the right types."""
        self.fields = {path: Kept(len(begin)) for path in wanted}
        self._left: Bool = np.zeros(len(begin), bool)
        if len(begin):
            rows = np.arange(len(begin))
            if plan.weight:
                rows = self._charge(rows, plan.weight)
            self._walk(plan.root, rows, 0)
        unsigned = data.cast("B")  # Arrow's bytes have a sign
        for row in np.flatnonzero(self._left & self.good).tolist():
            self._one(unsigned, row, int(begin[row]), int(end[row]), plan)

    def _one(self, data: memoryview, row: int, begin: int, end: int, plan: Plan) -> None:
        for kept in self.fields.values():
            kept.found[row] = kept.symbol[row] = kept.text[row] = False
        try:
            value = SingleValue(data, begin, end, plan)
        except NotOfSchemaError:
            self.good[row] = False
            return
        for path, (at, size) in value.spans.items():
            kept = self.fields[path]
            kept.found[row], kept.text[row], kept.begin[row], kept.size[row] = True, True, at, size
        for path, ms in value.times.items():
            kept = self.fields[path]
            kept.found[row], kept.begin[row] = True, ms
        for path, symbol in value.symbols.items():
            kept = self.fields[path]
            kept.found[row], kept.symbol[row], kept.begin[row] = True, True, kept.place((symbol,))

    def _walk(self, node: Node, rows: Int, level: int) -> Int:
        """Step over a node in some values; return those that are still good."""
        match node:
            case Fixed():
                return self._skip(rows, node.size) if node.size else rows
            case Varint():
                return self._number(node, rows)
            case Sized():
                return self._text(node, rows)
            case Union():
                return self._union(node, rows, level)
            case Items():
                return self._items(node, rows, level)
            case Sequence():
                if level > _MOST_LEVELS:
                    return self._leave(rows)
                for each in node.fields:
                    rows = self._walk(each, rows, level + 1)
                    if not len(rows):
                        break
                return rows
            case Wrong():
                return self._fail(rows)

    def _number(self, node: Varint, rows: Int) -> Int:
        rows, values = self._varint(rows)
        if node.symbols is not None:
            rows, values = self._only(rows, (values >= 0) & (values < len(node.symbols)), values)
        if node.path is not None:
            kept = self.fields[node.path]
            kept.found[rows] = True
            if node.symbols is None:
                kept.begin[rows] = values if node.per_ms == 1 else values // node.per_ms
            else:
                kept.symbol[rows] = True
                kept.begin[rows] = values + kept.place(node.symbols)
        return rows

    def _text(self, node: Sized, rows: Int) -> Int:
        rows, sizes = self._varint(rows)
        begin = self._at[rows]
        fits = (sizes >= 0) & (sizes <= self._end[rows] - begin)
        if node.most is not None:
            fits &= sizes <= node.most
        rows, begin, sizes = self._only(rows, fits, begin, sizes)
        self._at[rows] = begin + sizes
        if node.path is not None:
            kept = self.fields[node.path]
            kept.found[rows], kept.text[rows], kept.begin[rows], kept.size[rows] = True, True, begin, sizes
        return rows

    def _union(self, node: Union, rows: Int, level: int) -> Int:
        rows, branch = self._varint(rows)
        rows, branch = self._only(rows, (branch >= 0) & (branch < len(node.branches)), branch)
        going_on = []
        # Only branches that occur: a schema may have a hundred thousand.
        numbers = np.flatnonzero(np.bincount(branch)).tolist()
        for number, mine in zip(numbers, _by_branch(rows, branch, numbers), strict=True):
            if node.weights[number]:
                mine = self._charge(mine, node.weights[number])
            if len(mine):
                going_on.append(self._walk(node.branches[number], mine, level))
        return np.sort(np.concatenate(going_on)) if len(going_on) > 1 else going_on[0] if going_on else rows

    def _items(self, node: Items, rows: Int, level: int) -> Int:
        """Step over an array or map, block after block, item after item."""
        done = []
        taken = blocks = 0
        while len(rows):
            if blocks == _MOST_ITEMS:
                self._leave(rows)
                break
            blocks += 1
            rows, count = self._varint(rows)
            negative = count < 0
            if negative.any():  # such a block has its size in bytes after the count
                sized, _ = self._varint(rows[negative])
                still = np.isin(rows, sized) | ~negative
                rows, count = rows[still], np.abs(count[still])
            fits = (count >= 0) & (count <= self._values_left[rows] // node.weight)
            rows, count = self._only(rows, fits, count)
            self._values_left[rows] -= count * node.weight
            done.append(rows[count == 0])
            rows, count = rows[count > 0], count[count > 0]
            if isinstance(node.item, Fixed) and not node.has_keys:
                rows = self._skip(rows, count * node.item.size)
                continue
            inside, number = rows, 0
            while len(inside):
                if taken == _MOST_ITEMS:
                    self._leave(inside)
                    break
                if node.has_keys:
                    inside = self._text(Sized(), inside)
                inside = self._walk(node.item, inside, level + 1)
                taken, number = taken + 1, number + 1
                inside = inside[count[np.searchsorted(rows, inside)] > number]
            rows = rows[self.good[rows] & ~self._left[rows]]
        return np.sort(np.concatenate(done)) if len(done) > 1 else done[0] if done else rows

    def _charge(self, rows: Int, values: int) -> Int:
        """Charge `values` to the budget of some values; return those whose budget suffices."""
        (rows,) = self._only(rows, self._values_left[rows] >= values)
        self._values_left[rows] -= values
        return rows

    def _skip(self, rows: Int, size: Any) -> Int:
        begin = self._at[rows]
        fits = size <= self._end[rows] - begin
        self._at[rows] = begin + size
        return rows if fits.all() else self._fail(rows, fits)

    def _varint(self, rows: Int) -> tuple[Int, Int]:
        """Read a number in some values; return those that have one, and the numbers."""
        at = self._at[rows]
        there = at < self._end[rows]
        if not there.all():
            rows, at = self._fail(rows, there), at[there]
        byte = self._data[at]
        at += 1
        self._at[rows] = at
        value = (byte & 0x7F).astype(np.uint64)
        more = np.flatnonzero(byte >= 0x80)
        cut = np.zeros(len(rows), bool)
        shift = 7
        while len(more):
            place = at[more]
            there = place < self._end[rows[more]]
            if shift >= 70:
                there[:] = False
            cut[more[~there]] = True
            more, place = more[there], place[there]
            byte = self._data[place]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(min(shift, 63))
            at[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        number = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
        if shift > 7:
            self._at[rows] = at
            if cut.any():
                return self._fail(rows, ~cut), number[~cut]
        return rows, number

    def _only(self, rows: Int, fits: Bool, *columns: Int) -> tuple[Int, ...]:
        if fits.all():
            return rows, *columns
        return self._fail(rows, fits), *(column[fits] for column in columns)

    def _fail(self, rows: Int, fits: Bool | None = None) -> Int:
        """Note which are not values of the schema; return the others."""
        self.good[rows if fits is None else rows[~fits]] = False
        return rows[:0] if fits is None else rows[fits]

    def _leave(self, rows: Int) -> Int:
        """Leave these values to be read one by one."""
        self._left[rows] = True
        return rows[:0]


def _by_branch(rows: Int, branch: Int, numbers: list[int]) -> Iterable[Int]:
    """Yield the rows of each branch that occurs. Comparing all rows with each of a few branches costs less than sorting them."""
    if len(numbers) <= _FEW_BRANCHES:
        return [rows[branch == number] for number in numbers]
    order = np.argsort(branch, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(branch[order])) + 1)
