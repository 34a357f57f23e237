"""A schema may define what others import as built in: Google's own files are registered, too, and values are of their messages."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf import any_pb2, descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.message import Message
from google.type import money_pb2

from service.formats.proto_text import descriptors
from service.formats.protobuf import decode
from service.formats.writer import WriterSchema

STRUCT = (
    'syntax = "proto3"; package google.protobuf; message Struct { map<string, Value> fields = 1; } message Value { oneof kind {'
    " NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4; Struct struct_value = 5;"
    " ListValue list_value = 6; } } enum NullValue { NULL_VALUE = 0; } message ListValue { repeated Value values = 1; }"
)
TIMESTAMP = (
    'syntax = "proto3"; package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }'
)
WRAPPERS = 'syntax = "proto3"; package google.protobuf; message Int32Value { int32 value = 1; }'
ANY = 'syntax = "proto3"; package google.protobuf; message Any { string type_url = 1; bytes value = 2; }'
MONEY = 'syntax = "proto3"; package google.type; message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }'
ONES: dict[str, tuple[Any, str, Message, Any]] = {
    "Struct": (
        struct_pb2,
        STRUCT,
        struct_pb2.Struct(fields={"k": struct_pb2.Value(list_value={"values": [{"number_value": 1}]})}),
        {"fields": {"k": {"list_value": {"values": [{"number_value": 1.0}]}}}},
    ),
    "Timestamp": (
        timestamp_pb2,
        TIMESTAMP,
        timestamp_pb2.Timestamp(seconds=7),
        datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC),
    ),
    "Int32Value": (wrappers_pb2, WRAPPERS, wrappers_pb2.Int32Value(value=5), {"value": 5}),
    "Any": (any_pb2, ANY, any_pb2.Any(type_url="t", value=b"v"), {"type_url": "t", "value": b"v"}),
    "Money": (
        money_pb2,
        MONEY,
        money_pb2.Money(currency_code="EUR", units=5),
        {"currency_code": "EUR", "units": 5, "nanos": 0},
    ),
}


def descriptor(module: Any) -> str:
    """A generated module's own file, as a registry gives it."""
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize("name", ONES)
@pytest.mark.parametrize("as_text", [True, False])
def test_a_built_in_type_is_a_schema_of_its_own(name: str, as_text: bool) -> None:
    module, text, value, expected = ONES[name]
    names = list(module.DESCRIPTOR.message_types_by_name)
    path = 0 if as_text else names.index(name)
    schema = WriterSchema("PROTOBUF", text if as_text else descriptor(module))
    assert decode(schema, (path,), value.SerializeToString()) == expected


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("name", ONES)
def test_a_reference_under_another_name_may_define_a_built_in_type(name: str, as_text: bool) -> None:
    module, text, value, expected = ONES[name]
    package = module.DESCRIPTOR.package
    root = (
        f'syntax = "proto3"; package shop; import "own.proto"; message Order {{ {package}.{name} it = 1; }}'
    )
    references = {"own.proto": text}
    if not as_text:
        root, references = descriptors(root, references)
    body = value.SerializeToString()
    body = b"\x0a" + bytes([len(body)]) + body
    assert decode(WriterSchema("PROTOBUF", root, tuple(references.items())), (0,), body) == {"it": expected}


@pytest.mark.parametrize("as_text", [True, False])
def test_a_built_in_type_may_import_another_one(as_text: bool) -> None:
    text = (
        'syntax = "proto3"; package google.type; import "google/protobuf/timestamp.proto";'
        " message Interval { google.protobuf.Timestamp start_time = 1; }"
    )
    schema = WriterSchema("PROTOBUF", text if as_text else descriptors(text, {})[0])
    assert decode(schema, (0,), b"\x0a\2\x08\7") == {"start_time": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)}
