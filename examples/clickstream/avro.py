"""The example's events as Avro: the same fields, behind the id of their schema in the registry."""

import io
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import fastavro
import orjson
from confluent_kafka.schema_registry import Schema

from examples.clickstream.events import END, ENTRY, START, Record
from service.formats.registry.answers import registry_errors
from service.formats.registry.client import registry_client
from service.formats.wire import framed
from service.settings import SchemaRegistrySettings

_OPTIONAL = ("user", "platform", "channel", "lifecycle", "page", "product")

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "namespace": "shop",
        "fields": [
            {"name": "event_type", "type": {"type": "enum", "name": "Kind", "symbols": [START, ENTRY, END]}},
            {"name": "session_key", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "event_id", "type": "string"},
            *({"name": name, "type": ["null", "string"], "default": None} for name in _OPTIONAL),
            {"name": "price_cents", "type": ["null", "long"], "default": None},
        ],
    }
)


def registered(settings: SchemaRegistrySettings, topic: str) -> int:
    """Register the schema of a topic's events, as a producer's deployment does; return its id.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    with registry_errors(settings.url):
        return registry_client(settings.client()).register_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))


def as_avro(records: Iterable[Record], schema_id: int) -> Iterator[Record]:
    """Encode the JSON of some records as Avro."""
    parsed = fastavro.parse_schema(json.loads(SCHEMA))
    for key, value, time_ms in records:
        event: dict[str, Any] = orjson.loads(value)
        event["at"] = datetime.fromisoformat(event["at"])
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, event)
        yield key, framed(schema_id, out.getvalue()), time_ms
