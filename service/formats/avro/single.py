"""Reads one Avro value by its plan, byte by byte, with the verdicts of the reader of whole columns but some hundred times slower. It is for
values that are too long or too deep for that reader, and checks any value before it is decoded whole for people.
"""

from service.formats.avro.plan import (
    FieldPath,
    Fixed,
    Items,
    Node,
    Plan,
    Sequence,
    Sized,
    Union,
    Varint,
    Wrong,
)
from service.formats.budget import MOST_LEVELS, most_values


class NotOfSchemaError(ValueError):
    """The bytes are not a value of the schema. The text quotes none of the bytes: the console shows it to people who may see no event."""


class SingleValue:
    """The fields found in one value."""

    def __init__(self, data: memoryview, begin: int, end: int, plan: Plan) -> None:
        """Raises NotOfSchemaError."""
        self._data, self._at, self._end = data, begin, end
        self._values_left = most_values(end - begin)
        self.spans: dict[FieldPath, tuple[int, int]] = {}
        """Start and length of each text, in bytes."""
        self.times: dict[FieldPath, int] = {}
        """Milliseconds."""
        self.symbols: dict[FieldPath, str] = {}
        self._charge(plan.weight)
        self._read(plan.root, 0)

    def _read(self, node: Node, level: int) -> None:
        if level > MOST_LEVELS:
            raise NotOfSchemaError(f"it nests deeper than {MOST_LEVELS} levels")
        match node:
            case Fixed():
                self._skip(node.size)
            case Varint():
                self._number(node)
            case Sized():
                size = self._varint()
                if node.most is not None and size > node.most:
                    raise NotOfSchemaError(f"it has a decimal of over {node.most} bytes")
                begin = self._at
                self._skip(size)
                if node.path is not None:
                    self.spans[node.path] = begin, size
            case Union():
                branch = self._varint()
                if not 0 <= branch < len(node.branches):
                    raise NotOfSchemaError("a union has no such branch")
                self._charge(node.weights[branch])
                self._read(node.branches[branch], level)
            case Items():
                self._items(node, level)
            case Sequence():
                for each in node.fields:
                    self._read(each, level + 1)
            case Wrong():
                raise NotOfSchemaError(f"field {'.'.join(node.path)} has another type")

    def _number(self, node: Varint) -> None:
        value = self._varint()
        if node.symbols is not None and not 0 <= value < len(node.symbols):
            raise NotOfSchemaError("an enum has no such symbol")
        if node.path is not None and node.symbols is not None:
            self.symbols[node.path] = node.symbols[value]
        elif node.path is not None:
            self.times[node.path] = value // node.per_ms

    def _items(self, node: Items, level: int) -> None:
        while count := self._varint():
            if count < 0:
                count = -count
                self._varint()  # the block's bytes
            self._charge(count * node.weight)
            for _ in range(count):
                if node.has_keys:
                    self._skip(self._varint())
                self._read(node.item, level + 1)

    def _charge(self, values: int) -> None:
        if values > self._values_left:
            raise NotOfSchemaError("it claims more values than its bytes can hold")
        self._values_left -= values

    def _skip(self, size: int) -> None:
        if not 0 <= size <= self._end - self._at:
            raise NotOfSchemaError("it is cut off")
        self._at += size

    def _varint(self) -> int:
        value = shift = 0
        while self._at < self._end and shift < 70:
            byte = self._data[self._at]
            value |= (byte & 0x7F) << shift
            self._at += 1
            if byte < 0x80:
                value &= (1 << 64) - 1
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise NotOfSchemaError("it is cut off")
