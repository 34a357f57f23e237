"""The same events in every format."""

import base64
import io
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import fastavro
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from service.schemas.wire import framed
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

Encode = Callable[[Mapping[str, Any]], bytes]


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """The events' Protobuf file; they are its second message."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    message = file.message_type.add(name="Click")
    of = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, label) in enumerate(
        [
            ("page", of.TYPE_STRING, of.LABEL_OPTIONAL),
            ("event_type", of.TYPE_STRING, of.LABEL_OPTIONAL),
            ("session_key", of.TYPE_STRING, of.LABEL_OPTIONAL),
            ("price_cents", of.TYPE_INT64, of.LABEL_OPTIONAL),
            ("tags", of.TYPE_STRING, of.LABEL_REPEATED),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label)
    return file


@cache
def proto_class() -> Any:
    """The class of the events' message."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Click"))


def avro_encoder(schema_id: int, text: str = AVRO) -> Encode:
    """Encode as Avro behind that id."""
    parsed = fastavro.parse_schema(json.loads(text))

    def encode(event: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, dict(event))
        return framed(schema_id, out.getvalue())

    return encode


def registered(registry: Registry, format: str, subject: str = "clicks-value") -> Encode:
    """Register the events' schema of a format; return what encodes events by it."""
    match format:
        case "avro":
            return avro_encoder(registry.register(subject, "AVRO", AVRO))
        case "protobuf":
            text = base64.b64encode(proto_file().SerializeToString()).decode()
            schema_id, made = registry.register(f"{subject}-proto", "PROTOBUF", text), proto_class()
            # The path to the second message: one number, 1; both as zigzag varints.
            return lambda event: framed(schema_id, b"\2\2" + made(**event).SerializeToString())
        case "json-schema":
            schema_id = registry.register(f"{subject}-json", "JSON", JSON_SCHEMA)
            return lambda event: framed(schema_id, orjson.dumps(event))
    return lambda event: orjson.dumps(event)
