"""Avro schemas parsed, and whole Avro values: fastavro does both."""

import io
import json
from functools import lru_cache
from typing import Any

from service.schemas.writer import SchemaUnusableError, WriterSchema


@lru_cache(maxsize=1_000)
def parsed(schema: WriterSchema) -> tuple[Any, dict[str, Any]]:
    """Return the schema as fastavro wants it, and its named types by full name.

    Raises SchemaUnusableError.
    """
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            parse_schema(json.loads(text), named_schemas=named)
        # A type that is only a name is one of the references.
        return parse_schema(json.loads(schema.text), named_schemas=named), named
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise SchemaUnusableError(f"not an Avro schema: {type(error).__name__}: {error}") from error


def decode(schema: WriterSchema, body: bytes) -> Any:
    """Return a whole value, logical types as Python has them.

    Raises ValueError where it is not one of the schema, SchemaUnusableError.
    """
    from fastavro import schemaless_reader

    try:
        return schemaless_reader(io.BytesIO(body), parsed(schema)[0], None)
    except (EOFError, IndexError, KeyError, TypeError, OverflowError, StopIteration, AssertionError) as error:
        raise ValueError(f"the value is not of its Avro schema: {type(error).__name__}: {error}") from error
