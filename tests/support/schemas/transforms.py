"""Transforms that tell the same of a session whatever format its events have, and send it with a schema, too."""

import json
from collections.abc import Iterable
from typing import Any

import orjson
from google.protobuf import descriptor_pb2

from spark_job import OutputEvent, OutputSchema, Session, WithSchema
from tests.support.pipeline.transforms import CARTS, INPUT, PAGES
from tests.support.schemas.clicks import class_of

HERE = "tests.support.schemas.transforms"
FAILS = "fails"
"""Keys that `avro` fails on, and `avro_mended` does not."""
REFUSED = "refused"
"""The key of a session with one output more, of a schema that the registry refuses."""


def _total_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="total.proto", package="shop", syntax="proto3")
    message, of = file.message_type.add(name="Total"), descriptor_pb2.FieldDescriptorProto
    message.field.add(name="key", number=1, type=of.TYPE_STRING, label=of.LABEL_OPTIONAL)
    message.field.add(name="cents", number=2, type=of.TYPE_INT64, label=of.LABEL_OPTIONAL)
    return file


TOTAL_CLASS = class_of(_total_file(), "shop.Total")
_FIELDS = [{"name": "key", "type": "string"}, {"name": "cents", "type": "long"}]
_PROPERTIES = {"key": {"type": "string"}, "cents": {"type": "integer"}}
TOTALS = {
    "avro": OutputSchema("avro", json.dumps({"type": "record", "name": "Total", "fields": _FIELDS})),
    "protobuf": OutputSchema("protobuf", TOTAL_CLASS),
    "json-schema": OutputSchema(
        "json-schema", json.dumps({"title": "Total", "type": "object", "properties": _PROPERTIES})
    ),
}
"""Of the outputs for CARTS."""
_OTHER_FIELDS = [*_FIELDS, {"name": "currency", "type": "string"}]
OTHER_TOTAL = OutputSchema("avro", json.dumps({"type": "record", "name": "Total", "fields": _OTHER_FIELDS}))
"""It cannot read what the one of TOTALS has written."""


def plain(session: Session) -> Iterable[OutputEvent]:
    """JSON to PAGES."""
    return [_told(session, [event.value for event in session.events])]


def of_bytes(session: Session) -> Iterable[OutputEvent]:
    """The same, of events that nobody has decoded."""
    return [_told(session, [orjson.loads(event.raw) for event in session.events])]


def avro(session: Session) -> Iterable[OutputEvent]:
    """The same, and Avro to CARTS."""
    if session.key.startswith(FAILS):
        raise ValueError("not yet")
    return avro_mended(session)


def avro_mended(session: Session) -> Iterable[OutputEvent]:
    """The same for all sessions."""
    return _with_total(session, "avro")


def protobuf(session: Session) -> Iterable[OutputEvent]:
    """The same, and Protobuf to CARTS."""
    return _with_total(session, "protobuf")


def json_schema(session: Session) -> Iterable[OutputEvent]:
    """The same, and JSON with a schema to CARTS."""
    return _with_total(session, "json-schema")


def _with_total(session: Session, format: str) -> list[OutputEvent]:
    total: Any = {"key": session.key, "cents": sum(event.value["price_cents"] for event in session.events)}
    if format == "protobuf":
        total = TOTAL_CLASS(**total)
    made = [*plain(session), OutputEvent(_topic(session, CARTS), WithSchema(total, TOTALS[format]))]
    if session.key == REFUSED:
        other = {"key": "", "cents": 0, "currency": ""}
        made.append(OutputEvent(_topic(session, PAGES), WithSchema(other, OTHER_TOTAL)))
    return made


def _told(session: Session, values: list[dict[str, Any]]) -> OutputEvent:
    said = [
        [value["event_type"], value.get("page") or None, value["price_cents"], list(value["tags"])]
        for value in values
    ]
    times = [event.timestamp.isoformat() for event in session.events]
    types = [event.type for event in session.events]
    return OutputEvent(
        _topic(session, PAGES), {"key": session.key, "types": types, "times": times, "said": said}
    )


def _topic(session: Session, name: str) -> str:
    return session.start.topic.removesuffix(INPUT) + name
