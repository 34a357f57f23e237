"""Parse JSON payloads in blocks, without letting a record's verdict depend on its neighbours.

Arrow's JSON reader takes a whole block of lines. Four things keep it exact:
1. Only payloads that start with `{` and end with `}` go in unchecked. Two neighbours are then parsed separately, or the block
   fails: `}` before `{` is no JSON, and an open string would contain the line break between them.
   (This also keeps out a block that begins with `null`, which crashes Arrow's reader, 26.0.)
2. Payloads that may contain NaN or Infinity (Arrow accepts them, the JSON standard does not), that may nest deeper than
   orjson's 1,024 levels (the transform could not decode them), or that have outer spaces are decoded with orjson first.
   They go in only if orjson accepts them.
3. A block must yield one row for each payload: a payload of two documents yields two rows.
4. A block that fails is split, down to single records: a record that fails alone is malformed. If it has at most 512 records,
   orjson and the rules below first leave out those that Arrow would refuse: a bad record then costs some ten times as much as a good one,
   not some hundred times.

Arrow and orjson then differ only about numbers beyond a 64-bit float (docs/sessions.md) and zeros with such an exponent. Arrow decides
about these, also in a block that has failed: a search for them would slow down every event.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.settings import FieldPath

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_BLOCK_BYTES = 32 << 20
_SPLIT = 16
_FILTER_ROWS = 512
_ODD = (b"NaN", b"Inf")
_SCAN_BYTES = 256 << 10
_HUGE_NUMBER = re.compile(rb"\d{200}|[eE]\+?\d{3}")
"""Numbers that orjson and Arrow may judge differently: many digits, a large exponent."""
_TEXT_OR_NUMBER = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|(\d+)(?:\.(\d+))?(?:[eE]\+?(\d+))?', re.DOTALL)
_GREATEST_EXPONENT = 308
_DEEP_BYTES = 2000  # a payload of fewer bytes cannot nest deeper than orjson reads
_DEEP_BRACKETS = 1000
_EMPTY = pa.scalar(b"", pa.large_binary())
_NEWLINE = pa.scalar(b"\n", pa.large_binary())


@dataclass(frozen=True, slots=True)
class Fields:
    """The rows that are JSON objects with fields of the right types, and those fields' columns."""

    rows: Int
    """Positions in the parsed array, ascending."""
    table: pa.Table

    def column(self, path: FieldPath) -> pa.Array:
        """The field at `path`; null if the field or one of its parents is missing or null."""
        column = self.table.column(path[0])
        for name in path[1:]:
            column = pc.struct_field(column, name)
        return column.combine_chunks()


class Decoder:
    """Reads the fields at the given paths, each with its Arrow type, out of JSON payloads."""

    def __init__(self, paths: Sequence[tuple[FieldPath, pa.DataType]]) -> None:
        self._paths = paths
        tree: dict[str, Any] = {}
        self._tree = tree
        for path, kind in paths:
            node = tree
            for name in path[:-1]:
                node = node.setdefault(name, {})
            node[path[-1]] = kind
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(_fields(tree)), unexpected_field_behavior="ignore"
        )

    def decode(self, payloads: pa.LargeBinaryArray) -> Fields:
        """Parse payloads (no nulls); rows that are not in the result are malformed."""
        rows = _eligible(payloads)
        if len(rows) < len(payloads):
            payloads = payloads.take(pa.array(rows))
        bounds, _ = views(payloads)
        tables: list[pa.Table] = []
        taken: list[Int] = []
        low = 0
        while low < len(payloads):
            high = max(low + 1, int(np.searchsorted(bounds, bounds[low] + _BLOCK_BYTES, side="right")) - 1)
            for found, table in self._block(payloads, np.arange(low, high)):
                tables.append(table)
                taken.append(rows[found])
            low = high
        if not tables:
            return Fields(rows[:0], self._options.explicit_schema.empty_table())
        return Fields(np.concatenate(taken), pa.concat_tables(tables))

    def refusal_of(self, payload: bytes) -> str:
        """Return what is wrong with a payload that `decode` left out."""
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            return f"not JSON: {error}"
        if not isinstance(document, dict):
            return f"not a JSON object but {type(document).__name__}"
        for path, kind in self._paths:
            value = at(document, path)
            if not _fits(value, kind):
                return f"field {'.'.join(path)} is not {'an integer' if kind == pa.int64() else 'a string'}"
        return "a field named in the session settings occurs twice or has a parent that is not an object, or a number is out of range"

    def _block(self, payloads: pa.LargeBinaryArray, rows: Int) -> list[tuple[Int, pa.Table]]:
        """Parse some rows; return (rows, their fields) for those that can be parsed."""
        whole = rows[-1] - rows[0] == len(rows) - 1
        table = self._parse(payloads.slice(rows[0], len(rows)) if whole else payloads.take(pa.array(rows)))
        if table is not None:
            return [(rows, table)]
        if len(rows) == 1:
            return []
        if len(rows) > _FILTER_ROWS:
            parts = np.array_split(rows, _SPLIT)
        else:
            good = np.array([self._acceptable(payloads[row].as_py()) for row in rows.tolist()])
            parts = np.array_split(rows, 2) if good.all() else [rows[good]]
        return [found for part in parts if len(part) for found in self._block(payloads, part)]

    def _acceptable(self, payload: bytes) -> bool:
        """Return whether the payload has no fault that can be found without Arrow."""
        if _HUGE_NUMBER.search(payload) is not None:
            payload = _TEXT_OR_NUMBER.sub(_as_arrow_takes_it, payload)
        try:
            document = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return False
        return (
            isinstance(document, dict)
            and all(
                _has_parents(document, path) and _fits(at(document, path), kind) for path, kind in self._paths
            )
            and not self._names_a_field_twice(payload)
        )

    def _names_a_field_twice(self, payload: bytes) -> bool:
        """Return whether a wanted field, or a parent of one, occurs twice: orjson takes the last one, Arrow refuses both."""
        names = (name for path, _ in self._paths for name in path)
        if b"\\" not in payload and all(payload.count(b'"%b"' % name.encode()) < 2 for name in names):
            return False
        try:
            return _occurs_twice(json.loads(payload, object_pairs_hook=_Pairs), self._tree)
        except RecursionError:
            return False  # Arrow finds the fault

    def _parse(self, payloads: pa.LargeBinaryArray) -> pa.Table | None:
        lines = pc.binary_join_element_wise(payloads, _EMPTY, _NEWLINE)
        bounds, data = views(lines)
        block = data[bounds[0] : bounds[-1]]
        try:
            table = pj.read_json(
                pa.py_buffer(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=self._options,
            )
        except pa.ArrowInvalid:
            return None
        return table if table.num_rows == len(payloads) else None


def at(document: dict[str, Any], path: FieldPath) -> object:
    """Return the value at a path; None if it or one of its parents is missing."""
    value: object = document
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _as_arrow_takes_it(found: re.Match[bytes]) -> bytes:
    """Replace a huge number: if Arrow refuses it, by NaN, which orjson refuses; otherwise by a smaller one, no 64-bit integer either."""
    digits, fraction, exponent = found.groups()
    if digits is None:
        return found[0]
    if exponent is not None and len(exponent) > 2:
        exponent = exponent.lstrip(b"0")
        takes = len(exponent) < 10 and int(exponent or b"0") <= _most_exponent(digits, fraction or b"")
        return digits[:2] + b"e25" if takes else b"NaN"
    return digits[:25] + found[0][len(digits) :] if len(digits) >= 200 else found[0]


def _most_exponent(digits: bytes, fraction: bytes) -> int:
    """Return the greatest exponent that Arrow's parser, rapidjson, allows: it counts a fraction's digits as far as a double needs them."""
    if digits != b"0":
        return _GREATEST_EXPONENT + min(len(fraction), max(0, 18 - len(digits)))
    significant = len(fraction.lstrip(b"0"))
    return _GREATEST_EXPONENT + len(fraction) - significant + min(significant, 17)


class _Pairs(list[tuple[str, Any]]):
    """An object of a document with all its pairs, repeated names included."""


def _occurs_twice(document: object, tree: dict[str, Any]) -> bool:
    if not isinstance(document, _Pairs):
        return False
    for name, node in tree.items():
        found = [value for each, value in document if each == name]
        if len(found) > 1 or (found and isinstance(node, dict) and _occurs_twice(found[0], node)):
            return True
    return False


def _has_parents(document: dict[str, Any], path: FieldPath) -> bool:
    """Return whether all parents of a field that are present are objects."""
    value: object = document
    for name in path[:-1]:
        value = value.get(name) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            return False
    return True


def _fits(value: object, kind: pa.DataType) -> bool:
    if kind == pa.int64():
        return value is None or (type(value) is int and -(2**63) <= value < 2**63)
    return value is None or isinstance(value, str)


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(node)) if isinstance(node, dict) else node)
        for name, node in tree.items()
    ]


def _eligible(payloads: pa.LargeBinaryArray) -> Int:
    """Return the rows that may go into a block."""
    good = ~_odd(payloads)
    for row in np.flatnonzero(~good).tolist():  # rare
        try:
            good[row] = isinstance(orjson.loads(payloads[row].as_py()), dict)
        except orjson.JSONDecodeError:
            continue
    return np.flatnonzero(good)


def _odd(payloads: pa.LargeBinaryArray) -> Bool:
    bounds, data = views(payloads)
    size = np.diff(bounds)
    odd = size < 2
    text = np.frombuffer(data, np.uint8)
    if len(text):
        # An empty payload at the very end has no first byte: the byte before it serves, since the payload is odd anyway.
        odd |= text[np.minimum(bounds[:-1], len(text) - 1)] != ord("{")
        odd |= text[np.maximum(bounds[1:] - 1, 0)] != ord("}")
    low = int(bounds[0])
    for word in _ODD:
        found = _places(text[low : int(bounds[-1])], word)
        odd[np.searchsorted(bounds, found + low, side="right") - 1] = True
    large = np.flatnonzero(size >= _DEEP_BYTES)
    if len(large):
        values = payloads.take(pa.array(large))
        brackets = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
        odd[large[brackets.to_numpy(zero_copy_only=False) > _DEEP_BRACKETS]] = True
    return odd


def _places(text: npt.NDArray[np.uint8], word: bytes) -> Int:
    """Return where a word begins. Its first byte is searched for in pieces that fit the processor's cache, the others only after it."""
    whole = len(text) - len(word) + 1
    found = [
        np.flatnonzero(text[at : min(at + _SCAN_BYTES, whole)] == word[0]) + at
        for at in range(0, whole, _SCAN_BYTES)
    ]
    places = np.concatenate(found) if found else np.zeros(0, np.int64)
    for behind, byte in enumerate(word[1:], 1):
        places = places[text[places + behind] == byte]
    return places
