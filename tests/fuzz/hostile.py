"""Schemas as a stranger who knows the libraries would write them, out of any bytes: well-formed enough to be read, and wrong somewhere."""

import json
from typing import Any

from google.protobuf import descriptor_pb2

_NAMES = (
    *(
        "session_key",
        "event_type",
        "time",
        "a",
        "R",
        "E",
        "HasField",
        "DESCRIPTOR",
        "FromString",
        "ListFields",
    ),
    *(
        "__class__",
        "value",
        "key",
        "",
        "1",
        "a.b",
        "é",
        "null",
        "record",
        "string",
        "google.protobuf.Timestamp",
    ),
)
_LOGICAL: tuple[object, ...] = (
    *("decimal", "timestamp-millis", "timestamp-nanos", "local-timestamp-micros", "date", "time-millis"),
    *("duration", "uuid", "unknown", 5, None, ["x"], {}),
)
_NUMBERS = (0, 1, 2, 4, 12, 16, -1, -8, 400, 10**5, 2**31, 2**63, 10**30, 1.5, float("nan"), "1", True, None)
_PRIMITIVES = (
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "R",
    "E",
    "F",
    "missing",
)
_PROTO_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 100, 19_000, 2**29 - 1, 2**29, 0, -1)
_DEEPEST = 6
_MOST_FIELDS = 8


class _Choices:
    """Takes one byte for each choice; zeros where there is none left."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def number(self, below: int) -> int:
        return next(self._left, 0) % below

    def of(self, values: tuple[Any, ...]) -> Any:
        return values[self.number(len(values))]


def avro_schema(data: bytes) -> str:
    """Return the text of an Avro schema. One out of zeros is the schema of an event."""
    take = _Choices(data)
    fields = [
        {"name": name, "type": _avro(take, 0) if take.number(4) == 3 else plain}
        for name, plain in (("session_key", "string"), ("event_type", "string"), ("time", "long"))
    ]
    fields += [
        {"name": take.of(_NAMES) if take.number(4) == 3 else f"x{number}", "type": _avro(take, 0)}
        | ({"default": take.of(_NUMBERS)} if take.number(4) == 3 else {})
        for number in range(take.number(_MOST_FIELDS))
    ]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def _avro(take: _Choices, level: int) -> Any:
    named = {"name": take.of(_NAMES) if take.number(8) == 7 else f"N{take.number(256)}"}
    match take.number(9) if level < _DEEPEST else 0:
        case 1 | 2:
            more = {
                "logicalType": take.of(_LOGICAL),
                "precision": take.of(_NUMBERS),
                "scale": take.of(_NUMBERS),
            }
            kind = take.of(_PRIMITIVES)
            return (
                {"type": kind} | more
                if take.number(2)
                else {"type": kind, "logicalType": more["logicalType"]}
            )
        case 3:
            return [_avro(take, level + 1) for _ in range(take.number(5))]
        case 4:
            return {"type": "array", "items": _avro(take, level + 1)}
        case 5:
            return {"type": "map", "values": _avro(take, level + 1)}
        case 6:
            return named | {"type": "fixed", "size": take.of(_NUMBERS), "logicalType": take.of(_LOGICAL)}
        case 7:
            return named | {"type": "enum", "symbols": [take.of(_NAMES) for _ in range(take.number(4))]}
        case 8:
            fields = [{"name": f"y{at}", "type": _avro(take, level + 1)} for at in range(take.number(4))]
            return named | {"type": "record", "fields": fields}
    return take.of(_PRIMITIVES)


def proto_descriptor(data: bytes) -> bytes:
    """Return the descriptor of a Protobuf file, as no compiler has checked it. One out of zeros has the message of an event."""
    take = _Choices(data)
    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(syntax=take.of(("proto3", "proto2", "editions", "", "x")))
    if file.syntax == "editions":
        file.edition = take.of((0, 1, 998, 1000, 1001, 9_999, 99_999))
    file.package = take.of(("", "", "HasField", "google.protobuf", "a..b"))
    if take.number(4) == 3:
        file.dependency.append(
            take.of(("google/protobuf/timestamp.proto", "google/type/date.proto", "the schema.proto"))
        )
    message = file.message_type.add(name="M")
    for number, (name, kind) in enumerate(
        (("session_key", of.TYPE_STRING), ("event_type", of.TYPE_STRING), ("time", of.TYPE_INT64)), 1
    ):
        field = message.field.add(name=name, number=number, type=kind, label=of.LABEL_OPTIONAL)
        if take.number(4) == 3:
            _odd_field(field, take)
    for number in range(take.number(_MOST_FIELDS)):
        _odd_field(message.field.add(name=f"x{number}", number=4 + number), take)
    for number in range(take.number(4)):
        nested = message.nested_type.add(name=take.of(_NAMES) or f"N{number}")
        nested.options.map_entry = take.number(3) == 2
        for at, name in enumerate(("key", "value", "more")[: take.number(4)], 1):
            _odd_field(nested.field.add(name=name, number=at), take)
    for number in range(take.number(3)):
        kinds = file.enum_type.add(name=take.of(("E", "HasField", "")))
        for at in range(take.number(4)):
            kinds.value.add(name=take.of(_NAMES) or f"V{number}_{at}", number=take.number(3))
    if take.number(4) == 3:
        _odd_field(file.extension.add(name="ext", number=100, extendee=".M"), take)
        message.extension_range.add(start=take.of(_PROTO_NUMBERS), end=take.of(_PROTO_NUMBERS))
    text: bytes = file.SerializeToString()
    return text.replace(b"session_key", b"session_ke\xff") if take.number(32) == 31 else text


def _odd_field(field: Any, take: _Choices) -> None:
    if take.number(2):
        field.name = take.of(_NAMES)
    if take.number(8) == 7:
        field.number = take.of(_PROTO_NUMBERS)
    field.label = 1 + take.number(3)
    field.type = 1 + take.number(18)
    if field.type in (10, 11, 14):
        package = take.of(
            (
                ".M",
                ".M.HasField",
                ".M.DESCRIPTOR",
                ".E",
                ".M.N0",
                ".google.protobuf.Timestamp",
                "M",
                ".missing",
            )
        )
        field.type_name = package
    if take.number(8) == 7:
        field.default_value = take.of(("1", "x", "nan", "\0", "99999999999999999999"))
    if take.number(8) == 7:
        field.oneof_index = take.of((0, 1, -1, 2**30))
    field.proto3_optional = take.number(8) == 7
    field.json_name = take.of(("", "", "", "a\0", "x0"))
