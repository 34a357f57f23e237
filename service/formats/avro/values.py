"""Avro schemas parsed, and whole Avro values: fastavro does both."""

import io
import json
from typing import Any

from service.formats.remembered import SchemaCache
from service.formats.writer import SchemaUnusableError, WriterSchema

MOST_SCHEMA_LEVELS = 500


_parsed: SchemaCache[WriterSchema, tuple[Any, dict[str, Any]]] = SchemaCache()


def parsed(schema: WriterSchema) -> tuple[Any, dict[str, Any]]:
    """Return the schema as fastavro wants it, and its named types by full name.

    Raises SchemaUnusableError.
    """
    if (found := _parsed.get(schema)) is None:
        found = _parse(schema)
        _parsed.put(schema, found, schema.chars)
    return found


def _parse(schema: WriterSchema) -> tuple[Any, dict[str, Any]]:
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            parse_schema(_document(text), named_schemas=named)
        # A type that is only a name is one of the references.
        return parse_schema(_document(schema.text), named_schemas=named), named
    except (SchemaUnusableError, MemoryError):
        raise
    except Exception as error:  # of fastavro, for documents that nobody has checked
        raise SchemaUnusableError(f"not an Avro schema: {type(error).__name__}: {error}") from error


def _document(text: str) -> Any:
    """A schema's JSON. Nested deeper than MOST_SCHEMA_LEVELS it is refused, and not where Python's stack happens to end."""
    document = json.loads(text)
    level, below = 0, [document]
    while below:
        level += 1
        if level > MOST_SCHEMA_LEVELS:
            raise SchemaUnusableError(f"not an Avro schema: it nests deeper than {MOST_SCHEMA_LEVELS} levels")
        children = (each.values() if isinstance(each, dict) else each for each in below)
        below = [each for some in children for each in some if isinstance(each, dict | list)]
    return document


def decode(schema: WriterSchema, body: bytes) -> Any:
    """Return a whole value, logical types as Python has them.

    Raises ValueError where it is not one of the schema, SchemaUnusableError.
    """
    from fastavro import schemaless_reader

    try:
        return schemaless_reader(io.BytesIO(body), parsed(schema)[0], None)
    except (SchemaUnusableError, MemoryError):
        raise
    except Exception as error:  # of fastavro
        raise ValueError(f"the value is not of its Avro schema: {type(error).__name__}: {error}") from error
