"""Parses Avro schemas and decodes whole Avro values, with fastavro."""

import io
import json
from typing import Any

from service.formats.budget import MOST_NAME_CHARS
from service.formats.faults import fault
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
        # A schema that is only a name refers to a type of the references.
        return parse_schema(_document(schema.text), named_schemas=named), named
    except Exception as error:  # fastavro raises many kinds of errors for an unchecked document
        raise SchemaUnusableError(fault(error, "not an Avro schema")) from error


def _document(text: str) -> Any:
    """Return a schema's JSON.

    Raises SchemaUnusableError if it nests deeper than MOST_SCHEMA_LEVELS, so that the limit does not depend on Python's stack, or if a name
    exceeds MOST_NAME_CHARS: fastavro repeats a namespace in every full name, and a decoded value repeats field names that take no bytes in
    the record.
    """
    document = json.loads(text)
    level, below = 0, [document]
    while below:
        level += 1
        if level > MOST_SCHEMA_LEVELS:
            raise SchemaUnusableError(f"not an Avro schema: it nests deeper than {MOST_SCHEMA_LEVELS} levels")
        if any(_has_long_name(each) for each in below if isinstance(each, dict)):
            raise SchemaUnusableError(
                f"not an Avro schema: it has a name of over {MOST_NAME_CHARS} characters"
            )
        children = (each.values() if isinstance(each, dict) else each for each in below)
        below = [each for some in children for each in some if isinstance(each, dict | list)]
    return document


def _has_long_name(document: dict[str, Any]) -> bool:
    """Whether a namespace, or the name of a type or a field, is too long."""
    names = [document.get("namespace"), document.get("name")]
    return any(isinstance(each, str) and len(each) > MOST_NAME_CHARS for each in names)


def decode(schema: WriterSchema, body: bytes) -> Any:
    """Return a whole value; logical types are converted to Python's.

    Raises ValueError if `body` is not a value of the schema, SchemaUnusableError.
    """
    from fastavro import schemaless_reader

    try:
        return schemaless_reader(io.BytesIO(body), parsed(schema)[0], None)
    except SchemaUnusableError:
        raise
    except Exception as error:  # of fastavro
        raise ValueError(fault(error, "the value is not of its Avro schema")) from error
