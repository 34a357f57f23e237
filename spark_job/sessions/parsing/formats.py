"""The reader of a value's fields, by `[source] format`. All later steps see columns."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.faults import fault
from service.formats.wire import HEAD_BYTES
from service.formats.writer import Schemas, UnusableSchema, WriterSchema
from spark_job.sessions.parsing.boundary import joined, read_each, refusal
from spark_job.sessions.parsing.column_bytes import as_text, gathered, views
from spark_job.sessions.parsing.fields import ReadColumns, ReadFields, ValueDecoder, wanted_fields
from spark_job.sessions.parsing.json_documents import Decoder, Fields
from spark_job.sessions.parsing.schema_id_heads import heads
from spark_job.sessions.settings import AssemblySettings, FieldPath, Format

Int = npt.NDArray[np.int64]

KINDS: dict[str, str] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
"""The registry's names of the formats."""


def has_schemas(of: Format) -> bool:
    """Whether values of a format name schemas."""
    return of in KINDS


class Opaque:
    """`bytes`: accepts every value, and reads nothing of it."""

    def decode(self, payloads: pa.LargeBinaryArray) -> ReadColumns:
        """See ValueDecoder."""
        return ReadColumns(np.arange(len(payloads)))

    def refusal_of(self, payload: bytes) -> str:
        """Never called: `decode` leaves nothing out."""
        raise NotImplementedError


class BySchema:
    """Values in the wire format: grouped by schema; the reader of the schema's kind reads each group."""

    def __init__(self, settings: AssemblySettings, schemas: Schemas) -> None:
        self._kind = KINDS[settings.format]
        self._schemas = schemas
        self._reader = _schema_reader(settings)

    def decode(self, payloads: pa.LargeBinaryArray) -> ReadFields:
        """See ValueDecoder."""
        ids, good = heads(payloads)
        found: list[ReadFields] = []
        for schema_id in np.unique(ids[good]).tolist():
            schema = self._schemas[schema_id]
            if isinstance(schema, WriterSchema) and schema.kind == self._kind:
                read = partial(self._reader.read, payloads, schema)
                mine = np.flatnonzero(good & (ids == schema_id))
                found.append(read_each(read, mine, self._reader.wanted))
        return found[0] if len(found) == 1 else joined(found, self._reader.wanted)

    def refusal_of(self, payload: bytes) -> str:
        """See ValueDecoder."""
        ids, good = heads(pa.array([payload], pa.large_binary()))
        if not good[0]:
            return "not in the wire format: it does not begin with a zero byte and a schema id"
        schema_id = int(ids[0])
        schema = self._schemas[schema_id]
        if isinstance(schema, UnusableSchema):
            return schema.why
        if schema.kind != self._kind:
            return f"schema {schema_id} is {schema.kind}, not {self._kind}"
        return f"schema {schema_id}: {refusal(partial(self._reader.refusal_of, payload, schema))}"


class SchemaReader(Protocol):
    """Reads values of one kind of schema."""

    wanted: Mapping[FieldPath, pa.DataType]
    """The fields, and the types of their columns."""

    def read(self, payloads: pa.LargeBinaryArray, schema: WriterSchema, rows: Int) -> ReadFields:
        """Read some rows, all in the wire format and of this schema; `rows` of the result are the well-formed ones."""

    def refusal_of(self, payload: bytes, schema: WriterSchema) -> str:
        """Return what is wrong with a payload that `read` left out."""

    def why_unusable(self, schema: WriterSchema) -> str | None:
        """Return why no value at all can be read by a schema; None if some can."""


class Documents:
    """`json`."""

    def __init__(self, settings: AssemblySettings) -> None:
        self._decoder = json_decoder(settings)
        self._wanted = _json_fields(settings)

    def decode(self, payloads: pa.LargeBinaryArray) -> ReadFields:
        """See ValueDecoder."""

        def read(rows: Int) -> ReadFields:
            if len(rows) == len(payloads):
                return self._decoder.decode(payloads)
            found = self._decoder.decode(payloads.take(pa.array(rows)))
            return ReadColumns(rows[found.rows], {path: found.column(path) for path in self._wanted})

        return read_each(read, np.arange(len(payloads)), self._wanted)

    def refusal_of(self, payload: bytes) -> str:
        """See ValueDecoder."""
        return refusal(partial(self._decoder.refusal_of, payload))


class JsonBehindHead:
    """`json-schema`: JSON behind the head. The documents are not validated against the schema: their producer has done that."""

    def __init__(self, decoder: Decoder, wanted: Mapping[FieldPath, pa.DataType]) -> None:
        self._decoder = decoder
        self.wanted = wanted

    def read(self, payloads: pa.LargeBinaryArray, schema: WriterSchema, rows: Int) -> ReadFields:
        """See SchemaReader."""
        bounds, data = views(payloads)
        begin = bounds[rows] + HEAD_BYTES
        bodies = gathered(data, begin, bounds[rows + 1] - begin)
        text = as_text(bodies).is_valid()
        if not pc.all(text).as_py():
            rows, bodies = rows[text.to_numpy(zero_copy_only=False)], bodies.filter(text)
        found: Fields = self._decoder.decode(bodies)
        return ReadColumns(rows[found.rows], {path: found.column(path) for path in self.wanted})

    def refusal_of(self, payload: bytes, schema: WriterSchema) -> str:
        """See SchemaReader."""
        body = payload[HEAD_BYTES:]
        try:
            body.decode()
        except UnicodeDecodeError:
            return "the value is not UTF-8"
        return self._decoder.refusal_of(body)

    def why_unusable(self, schema: WriterSchema) -> str | None:
        """See SchemaReader. The schema is not used."""
        return None


def why_unusable(schema: WriterSchema | UnusableSchema, settings: AssemblySettings) -> str | None:
    """Return why no value of the settings' format can be read by a schema; None if some can.

    Also None for an UnusableSchema, which has a reason of its own, and for a schema of another kind.

    Raises RegistryAwayError or RegistryRefusedError if another schema that it needs is missing.
    """
    if isinstance(schema, UnusableSchema) or schema.kind != KINDS[settings.format]:
        return None
    try:
        return _schema_reader(settings).why_unusable(schema)
    except Exception as error:  # noqa: BLE001 - of any library, for any schema
        return fault(error, "it cannot be read")


def decoder_of(settings: AssemblySettings, schemas: Schemas) -> ValueDecoder:
    """Return the reader of values of this format. `schemas`: by id, all that occur."""
    if settings.format == "json":
        return Documents(settings)
    return Opaque() if settings.format == "bytes" else BySchema(settings, schemas)


def json_decoder(settings: AssemblySettings) -> Decoder:
    """Return the reader of JSON documents."""
    return Decoder(list(_json_fields(settings).items()))


def _json_fields(settings: AssemblySettings) -> dict[FieldPath, pa.DataType]:
    of_time = pa.string() if settings.time_format == "iso8601" else pa.int64()
    return {
        path: pa.string() if kept == "text" else of_time for path, kept in wanted_fields(settings).items()
    }


def _schema_reader(settings: AssemblySettings) -> SchemaReader:
    # protobuf.py imports a library that only its format needs.
    if settings.format == "avro":
        from spark_job.sessions.parsing.avro import AvroReader

        return AvroReader(settings)
    if settings.format == "protobuf":
        from spark_job.sessions.parsing.protobuf import ProtobufReader

        return ProtobufReader(settings)
    return JsonBehindHead(json_decoder(settings), _json_fields(settings))
