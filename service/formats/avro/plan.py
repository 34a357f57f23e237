"""Compiles an Avro schema to a plan: the fields to step over, and those to keep.

Avro values do not say where their fields are, so every field before a kept one must be stepped over. The fields after the last kept one are
stepped over as well, so that a truncated record is found here and not by the transform.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from service.formats.avro.values import parsed
from service.formats.budget import MOST_DECIMAL_BYTES, MOST_NAME_CHARS
from service.formats.faults import fault
from service.formats.writer import SchemaUnusableError, WriterSchema

FieldPath = tuple[str, ...]
"""The names from the record down to a field."""
Kept = Literal["text", "time"]
KeptFields = dict[FieldPath, Kept]

# Units of a logical time type in a millisecond.
_UNITS = {
    "timestamp-millis": 1,
    "timestamp-micros": 1_000,
    "timestamp-nanos": 1_000_000,
    "local-timestamp-millis": 1,
    "local-timestamp-micros": 1_000,
    "local-timestamp-nanos": 1_000_000,
}


@dataclass(slots=True)
class Fixed:
    """A fixed number of bytes."""

    size: int


@dataclass(slots=True)
class Varint:
    """An int, a long, or, with `symbols`, the index of an enum."""

    path: FieldPath | None = None
    """The field that is kept; None: none."""
    per_ms: int = 0
    """Units of the time in a millisecond; 0: not a time."""
    symbols: tuple[str, ...] | None = None


@dataclass(slots=True)
class Sized:
    """Bytes or a string, after their length."""

    path: FieldPath | None = None
    most: int | None = None
    """Greatest length in bytes."""


@dataclass(slots=True)
class Union:
    """One of several branches, after its number."""

    branches: list["Node"] = field(default_factory=list)
    weights: tuple[int, ...] = ()
    """The weight of each branch; see `_weight_of`."""


@dataclass(slots=True)
class Items:
    """The items of an array, or the entries of a map with text keys, in counted blocks."""

    item: "Node"
    has_keys: bool
    weight: int = 1
    """Least number of values of each item."""


@dataclass(slots=True)
class Sequence:
    """A record's fields. May contain itself."""

    fields: list["Node"] = field(default_factory=list)


@dataclass(slots=True)
class Wrong:
    """A requested field of a wrong type: a record with it is malformed."""

    path: FieldPath
    node: "Node"


Node = Fixed | Varint | Sized | Union | Items | Sequence | Wrong


@dataclass(frozen=True, slots=True)
class Plan:
    """How values of one schema are read."""

    root: Node
    weight: int


_ENDLESS = 2**62
_MOST_DEEP = 150
_MOST_FIXED_BYTES = 2**31
_MOST_PRECISION = 10_000


def plan_of(schema: WriterSchema, wanted: KeptFields, *, times_are_text: bool) -> Plan:
    """Make the plan. `wanted`: the fields to keep; `times_are_text`: how `[session] time_format` reads a time without a time type.

    Raises SchemaUnusableError.
    """
    document, named = parsed(schema)
    try:
        root = _Compiler(named, times_are_text).node(document, wanted, ())
    except Exception as error:  # the document is unchecked; fastavro checks it only in part
        raise SchemaUnusableError(fault(error, "not an Avro schema")) from error
    weight = _weigh(root)
    if weight == _ENDLESS:
        raise SchemaUnusableError(
            "not an Avro schema: each of its values contains itself, or is of records without end"
        )
    return Plan(root, weight)


def _weigh(root: Node) -> int:
    """Set the weights of all nodes; return the root's."""
    known: dict[int, int] = {}
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case Sequence():
                todo += node.fields
            case Wrong():
                todo.append(node.node)
            case Items():
                node.weight = max(1, _weight_of(node.item, known))
                todo.append(node.item)
            case Union():
                node.weights = tuple(_weight_of(each, known) for each in node.branches)
                todo += node.branches
    return _weight_of(root, known)


def _weight_of(node: Node, known: dict[int, int]) -> int:
    """Return how many values of a node take no byte: records and empty values, but none within a union or an array, which itself takes one.
    A record of records of nulls has many.
    """
    if isinstance(node, Sequence) and id(node) not in known:
        _weigh_records(node, known)
    return _known_weight(node, known)


def _weigh_records(root: Sequence, known: dict[int, int]) -> None:
    """Weigh a record after those that it contains. Not by recursion: a thousand may be nested."""
    todo = [(root, False)]
    while todo:
        record, has_weighed_fields = todo.pop()
        if has_weighed_fields:
            of_fields = sum(_known_weight(each, known) for each in record.fields)
            known[id(record)] = min(_ENDLESS, 1 + of_fields)
        elif id(record) not in known:
            known[id(record)] = _ENDLESS  # for the records inside that contain this record
            todo.append((record, True))
            todo += [(each, False) for each in record.fields if isinstance(each, Sequence)]


def _known_weight(node: Node, known: dict[int, int]) -> int:
    if isinstance(node, Fixed):
        return int(not node.size)
    return known[id(node)] if isinstance(node, Sequence) else 0


class _Compiler:
    def __init__(self, named: Mapping[str, Any], times_are_text: bool) -> None:
        self._named = named
        self._times_are_text = times_are_text
        self._deep = 0
        self._records: dict[tuple[str, FieldPath | None], Node] = {}
        """Nodes by the record's name, and by path if some field is kept: records may contain themselves, and be in many others."""
        self._enums: dict[str, tuple[str, ...]] = {}
        """Symbols by the enum's name: a hundred thousand fields may share an enum of a hundred thousand symbols."""

    def node(self, schema: Any, wanted: KeptFields, path: FieldPath) -> Node:
        """Compile a type. `wanted`: the kept fields below `path`."""
        if self._deep == _MOST_DEEP:
            raise SchemaUnusableError(f"not an Avro schema: its types nest deeper than {_MOST_DEEP} levels")
        self._deep += 1
        made = self._node(schema, wanted, path)
        self._deep -= 1
        return made

    def _node(self, schema: Any, wanted: KeptFields, path: FieldPath) -> Node:
        if isinstance(schema, list):
            return Union([self.node(branch, wanted, path) for branch in schema])
        if isinstance(schema, str):
            return (
                self.node(self._named[schema], wanted, path)
                if schema in self._named
                else self._leaf(schema, {}, wanted, path)
            )
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, wanted, path)
        if kind in ("array", "map"):
            items = Items(
                self.node(schema["items" if kind == "array" else "values"], {}, path), kind == "map"
            )
            return self._kept(items, wanted, path)
        if isinstance(kind, list | dict):
            return self.node(kind, wanted, path)
        if kind in self._named:
            return self.node(self._named[kind], wanted, path)
        return self._leaf(kind, schema, wanted, path)

    def _record(self, schema: Mapping[str, Any], wanted: KeptFields, path: FieldPath) -> Node:
        below: dict[str, KeptFields] = {}
        for each, kept in wanted.items():
            if len(each) > len(path):
                below.setdefault(each[len(path)], {})[each] = kept
        key = schema["name"], path if below else None
        if key in self._records:
            return self._kept(self._records[key], wanted, path)
        made = self._records[key] = Sequence()
        for each in schema["fields"]:
            made.fields.append(self.node(each["type"], below.get(each["name"], {}), (*path, each["name"])))
        return self._kept(made, wanted, path)

    def _leaf(self, kind: str, schema: Mapping[str, Any], wanted: KeptFields, path: FieldPath) -> Node:
        kept = wanted.get(path)
        match kind:
            case "null":
                return Fixed(0)
            case "boolean":
                return self._kept(Fixed(1), wanted, path)
            case "float":
                return self._kept(Fixed(4), wanted, path)
            case "double":
                return self._kept(Fixed(8), wanted, path)
            case "fixed":
                return self._kept(Fixed(_fixed_size(schema)), wanted, path)
            case "int" | "long":
                per_ms = _UNITS.get(schema.get("logicalType", ""), 0 if self._times_are_text else 1)
                return (
                    Varint(path, per_ms) if kept == "time" and per_ms else self._kept(Varint(), wanted, path)
                )
            case "enum":
                symbols = self._symbols(schema)
                return (
                    Varint(path, 0, symbols)
                    if kept == "text"
                    else self._kept(Varint(symbols=symbols), wanted, path)
                )
            case "string" if kept == "text" or (kept == "time" and self._times_are_text):
                return Sized(path)
            case _:  # bytes, string
                return self._kept(Sized(most=_most_bytes(schema)), wanted, path)

    def _symbols(self, schema: Mapping[str, Any]) -> tuple[str, ...]:
        if (found := self._enums.get(schema["name"])) is None:
            found = self._enums[schema["name"]] = _symbols(schema)
        return found

    def _kept(self, node: Node, wanted: KeptFields, path: FieldPath) -> Node:
        """Return the node of a type that cannot be kept; Wrong if it is wanted."""
        return Wrong(path, node) if path in wanted else node


def _fixed_size(schema: Mapping[str, Any]) -> int:
    size = schema["size"]
    if type(size) is not int or not 0 <= size <= _MOST_FIXED_BYTES:
        raise SchemaUnusableError(f"not an Avro schema: a fixed of {size!r} bytes")
    most = _most_bytes(schema)
    if most is not None and size > most:
        raise SchemaUnusableError(f"a decimal of {size} bytes, over {most}")
    return size


def _most_bytes(schema: Mapping[str, Any]) -> int | None:
    if schema.get("logicalType") != "decimal":
        return None
    if schema.get("precision", 0) > _MOST_PRECISION:
        raise SchemaUnusableError(f"a decimal of precision {schema['precision']}, over {_MOST_PRECISION}")
    return MOST_DECIMAL_BYTES


def _symbols(schema: Mapping[str, Any]) -> tuple[str, ...]:
    symbols = tuple(schema["symbols"])
    if not all(isinstance(each, str) and len(each) <= MOST_NAME_CHARS for each in symbols):
        raise SchemaUnusableError(
            f"an enum with a symbol of over {MOST_NAME_CHARS} characters, or that is no text"
        )
    return symbols
