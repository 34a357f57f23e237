"""Schemas together with values, by a stranger: each value is an event or malformed, alone as among others, and nothing else happens."""

import base64

import numpy as np
import pyarrow as pa

from service.formats.budget import most_values
from service.formats.values import as_json, decoded
from service.formats.wire import HEAD_BYTES, framed
from service.formats.writer import SchemaUnusableError, WriterSchema
from spark_job.sessions.parsing.formats import why_unusable
from spark_job.sessions.parsing.records import read_records
from spark_job.sessions.settings import AssemblySettings, Format
from tests.fuzz.hostile import avro_schema, proto_descriptor

SEPARATOR = b"\x1e"
KINDS: list[Format] = ["avro", "protobuf", "json-schema"]
HOSTILE = 0xF0
_ID = 7
_MOST_RECORDS = 20


def check_schema(data: bytes) -> None:
    """`data`: a byte that says which format, the schema (of Protobuf a descriptor), and values, with SEPARATOR between them.

    From HOSTILE on the byte says that the schema is one that a stranger makes out of these bytes.
    """
    kind = data[0] if data else 0
    format = KINDS[kind % len(KINDS)]
    text, *bodies = data[1:].split(SEPARATOR)
    schema = _hostile(format, text) if kind >= HOSTILE else _schema(format, text)
    values = [framed(_ID, body) for body in bodies[:_MOST_RECORDS]]
    rules = AssemblySettings(format=format, time_path=("time",), time_format="epoch_ms")
    good = _well_formed(values, schema, rules)
    if why_unusable(schema, rules) is not None:
        assert not any(good), "a value was read by a schema by which none can be read"
    for value, is_event in zip(values, good, strict=True):
        assert _well_formed([value], schema, rules) == [is_event], "the verdict depends on the neighbours"
        _check_value(value, schema, is_event=is_event)


def _schema(format: Format, text: bytes) -> WriterSchema:
    match format:
        case "protobuf":
            return WriterSchema("PROTOBUF", base64.b64encode(text).decode())
        case "avro":
            return WriterSchema("AVRO", text.decode("utf-8", "replace"))
    return WriterSchema("JSON", text.decode("utf-8", "replace"))


def _hostile(format: Format, text: bytes) -> WriterSchema:
    made = proto_descriptor(text) if format == "protobuf" else avro_schema(text).encode()
    return _schema(format, made)


def _well_formed(values: list[bytes], schema: WriterSchema, rules: AssemblySettings) -> list[bool]:
    table = pa.table(
        {
            "offset": pa.array(range(len(values)), pa.int64()),
            "ts": pa.array([0] * len(values), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )
    found = read_records(table, rules, {_ID: schema})
    malformed = [letter.first_offset for letter in found.letters]
    assert malformed == np.flatnonzero(~found.well_formed).tolist(), "a record is neither event nor letter"
    return found.well_formed.tolist()  # type: ignore[no-any-return]


def _check_value(value: bytes, schema: WriterSchema, *, is_event: bool) -> None:
    schemas = {_ID: schema}
    try:
        text = as_json(value, schemas)
    except ValueError:
        text = ""
    assert len(text) <= 8 * ((1 << 20) + 64 * len(value)) + 64, "a text for people of any size"
    if not is_event:
        return
    try:
        found = decoded(value, schemas)
    except ValueError:
        return  # of a field that no rule names: a text that is not UTF-8, a time that no datetime holds
    except SchemaUnusableError as error:
        raise AssertionError("an event by a schema that cannot be used") from error
    # As many as its bytes may be, and the names of unions and maps beside them.
    assert _values(found) <= 2 * most_values(len(value) - HEAD_BYTES) + 2, (
        "more came out than the bytes can hold"
    )


def _values(value: object) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return 1 + sum(map(_values, below))
