"""The same events in every format."""

import base64
import io
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import fastavro
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from service.formats.wire import framed
from tests.support.schemas.registry import Registry

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "namespace": "shop",
        "fields": [
            {"name": "page", "type": ["null", "string"], "default": None},
            {
                "name": "event_type",
                "type": {"type": "enum", "name": "Kind", "symbols": ["start", "entry", "end"]},
            },
            {"name": "session_key", "type": "string"},
            {"name": "price_cents", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {
                "name": "at",
                "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
                "default": None,
            },
            {"name": "event_id", "type": ["null", "string"], "default": None},
        ],
    }
)
NEWER_AVRO = json.dumps(
    json.loads(AVRO)
    | {"fields": [{"name": "shop", "type": "string", "default": "here"}, *json.loads(AVRO)["fields"]]}
)
"""The next version: a field more, before all others."""
JSON_SCHEMA = json.dumps(
    {"type": "object", "title": "Click", "properties": {"session_key": {"type": "string"}}}
)
NEWER_JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "title": "Click",
        "properties": {"session_key": {"type": "string"}, "shop": {"type": "string"}},
    }
)

Encode = Callable[[Mapping[str, Any]], bytes]


def proto_file(*, newer: bool = False) -> descriptor_pb2.FileDescriptorProto:
    """The events' Protobuf file; they are its second message. `newer`: the next version, with a field more before all others."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    file.message_type.add(name="Other")
    message = file.message_type.add(name="Click")
    of = descriptor_pb2.FieldDescriptorProto
    if newer:
        message.field.add(name="shop", number=15, type=of.TYPE_STRING, label=of.LABEL_OPTIONAL)
    for number, (name, kind, label) in enumerate(
        [
            ("page", of.TYPE_STRING, of.LABEL_OPTIONAL),
            ("event_type", of.TYPE_STRING, of.LABEL_OPTIONAL),
            ("session_key", of.TYPE_STRING, of.LABEL_OPTIONAL),
            ("price_cents", of.TYPE_INT64, of.LABEL_OPTIONAL),
            ("tags", of.TYPE_STRING, of.LABEL_REPEATED),
            ("event_id", of.TYPE_STRING, of.LABEL_OPTIONAL),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label)
    message.field.add(
        name="at",
        number=7,
        type=of.TYPE_MESSAGE,
        label=of.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )
    return file


def proto_text(*, newer: bool = False) -> str:
    """The same file as its text."""
    return f"""syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other {{}}
message Click {{
  {"string shop = 15;" if newer else ""}
  string page = 1;
  string event_type = 2;
  string session_key = 3;
  int64 price_cents = 4;
  repeated string tags = 5;
  string event_id = 6;
  google.protobuf.Timestamp at = 7;
}}
"""


@cache
def proto_class(*, newer: bool = False) -> Any:
    """The class of the events' message."""
    return class_of(proto_file(newer=newer), "shop.Click")


def class_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """The class of a file's message by its full name."""
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool.Add(timestamp)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def avro_encoder(schema_id: int, text: str = AVRO) -> Encode:
    """Encode as Avro behind that id."""
    parsed = fastavro.parse_schema(json.loads(text))

    def encode(event: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, dict(event))
        return framed(schema_id, out.getvalue())

    return encode


def registered(
    registry: Registry, format: str, subject: str = "clicks-value", *, newer: bool = False
) -> Encode:
    """Register the events' schema of a format, or its next version; return what encodes events by it.

    `at` of an event is a datetime; in JSON, whatever schema it has, that is a text.
    """
    match format:
        case "avro":
            text = NEWER_AVRO if newer else AVRO
            return avro_encoder(registry.register(subject, "AVRO", text), text)
        case "protobuf":
            # Not every real one takes a descriptor.
            descriptor = base64.b64encode(proto_file(newer=newer).SerializeToString()).decode()
            text = proto_text(newer=newer) if registry.is_real else descriptor
            schema_id = registry.register(f"{subject}-proto", "PROTOBUF", text)
            made = proto_class(newer=newer)
            # The path to the second message: one number, 1; both as zigzag varints.
            return lambda event: framed(schema_id, b"\2\2" + made(**event).SerializeToString())
        case "json-schema":
            text = NEWER_JSON_SCHEMA if newer else JSON_SCHEMA
            schema_id = registry.register(f"{subject}-json", "JSON", text)
            return lambda event: framed(schema_id, _json(event))
    return _json


def _json(event: Mapping[str, Any]) -> bytes:
    return orjson.dumps(event)
