"""Decodes a whole value in the wire format: for `Event.value`, and for people."""

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

from service.formats import protobuf
from service.formats.avro import values as avro
from service.formats.avro.plan import plan_of
from service.formats.avro.single import SingleValue
from service.formats.budget import MOST_TEXT
from service.formats.wire import message_path, split
from service.formats.writer import (
    RegistryAwayError,
    RegistryRefusedError,
    Schemas,
    SchemaUnusableError,
    UnusableSchema,
    WriterSchema,
)


def decoded(value: bytes, schemas: Schemas) -> Any:
    """Return the decoded value.

    Raises ValueError if the bytes are not in the wire format or not of their schema, SchemaUnusableError if no value can be read by that
    schema, and what `schemas` raises.
    """
    schema_id, body = split(value)
    schema = schemas[schema_id]
    if isinstance(schema, UnusableSchema):
        raise SchemaUnusableError(schema.why)
    match schema.kind:
        case "AVRO":
            return avro.decode(schema, body)
        case "PROTOBUF":
            return protobuf.decode(schema, *message_path(body))
        case "JSON":
            return orjson.loads(body)
    raise ValueError(f"schema {schema_id} is of a kind that is not supported: {schema.kind}")


def as_json(value: bytes, schemas: Schemas) -> str:
    """Return a value as JSON text for people, from any writer.

    Raises ValueError with the reason why it cannot be decoded, and what `schemas` raises.
    """
    try:
        _check(value, schemas)
        return orjson.dumps(_Plain(MOST_TEXT + 64 * len(value)).of(decoded(value, schemas))).decode()
    except (RegistryAwayError, RegistryRefusedError):
        raise
    except (ValueError, SchemaUnusableError) as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # the libraries raise many kinds of errors for an unchecked value
        raise ValueError(f"{type(error).__name__}: {error}") from error


def readable(value: bytes, schemas: Schemas) -> str | None:
    """Return a value as JSON text for people; None if it is not in the wire format or cannot be decoded.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    try:
        return as_json(value, schemas)
    except ValueError:
        return None  # the value is only shown, and its bytes are not lost


def _check(value: bytes, schemas: Schemas) -> None:
    """Step over an Avro value before it is decoded: a few of its bytes may claim any number of levels and items. Raises ValueError."""
    schema_id, body = split(value)
    schema = schemas[schema_id]
    if isinstance(schema, WriterSchema) and schema.kind == "AVRO":
        SingleValue(memoryview(body), 0, len(body), plan_of(schema, {}, times_are_text=False))


class _Plain:
    """Makes a value JSON-ready, with bounded text: the name of a field or enum value may be a thousand times as long as its bytes."""

    def __init__(self, most_chars: int) -> None:
        self._left = most_chars

    def of(self, value: Any) -> Any:
        """Return a value, JSON-ready. Raises ValueError if its text would be too large."""
        match value:
            case dict():
                return {self._counted(str(name)): self.of(each) for name, each in value.items()}
            case list() | tuple():
                return [self.of(each) for each in value]
            case bytes():
                return {"base64": base64.b64encode(value).decode()}
            case Decimal() | timedelta():
                return str(value)
            case float() if not math.isfinite(value):
                return str(value)
            case int() if not -(2**63) <= value < 2**64:
                return str(value)
            case str():
                return self._counted(value)
            case datetime() | date() | time() | UUID() | int() | float() | None:
                return value
        return repr(value)

    def _counted(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("its text would be too large")
        return text
