"""Avro behind the wire format's head: the fields that the settings name, as Arrow columns."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.avro.plan import Plan, plan_of
from service.formats.avro.single import NotOfSchemaError, SingleValue
from service.formats.remembered import SchemaCache
from service.formats.wire import HEAD_BYTES
from service.formats.writer import SchemaUnusableError, WriterSchema
from spark_job.sessions.parsing.avro_columns import AvroColumns, Kept
from spark_job.sessions.parsing.column_bytes import as_text, gathered, views
from spark_job.sessions.parsing.fields import ReadColumns, wanted_fields
from spark_job.sessions.parsing.times import iso8601_ms
from spark_job.sessions.settings import AssemblySettings, FieldPath

Int = npt.NDArray[np.int64]


class AvroReader:
    """See formats.SchemaReader."""

    def __init__(self, settings: AssemblySettings) -> None:
        self._settings = settings
        kept = wanted_fields(settings)
        self.wanted: Mapping[FieldPath, pa.DataType] = {
            path: pa.large_string() if what == "text" else pa.int64() for path, what in kept.items()
        }

    def read(self, payloads: pa.LargeBinaryArray, schema: WriterSchema, rows: Int) -> ReadColumns:
        """See formats.SchemaReader."""
        bounds, data = views(payloads)
        plan = _plan(schema, self._settings)
        if isinstance(plan, str):
            return ReadColumns(rows[:0], {path: pa.array([], kind) for path, kind in self.wanted.items()})
        found = AvroColumns(data, bounds[rows] + HEAD_BYTES, bounds[rows + 1], plan, list(self.wanted))
        good = np.flatnonzero(found.good)
        columns = {
            path: _texts(data, kept, good)
            if self.wanted[path] == pa.large_string()
            else self._times(data, kept, good)
            for path, kept in found.fields.items()
        }
        return ReadColumns(rows[good], columns)

    def refusal_of(self, payload: bytes, schema: WriterSchema) -> str:
        """See formats.SchemaReader."""
        plan = _plan(schema, self._settings)
        if isinstance(plan, str):
            return plan
        try:
            SingleValue(memoryview(payload), HEAD_BYTES, len(payload), plan)
        except NotOfSchemaError as error:
            return str(error)
        return "not of its schema"

    def why_unusable(self, schema: WriterSchema) -> str | None:
        """See formats.SchemaReader."""
        plan = _plan(schema, self._settings)
        return plan if isinstance(plan, str) else None

    def _times(self, data: memoryview, kept: Kept, rows: Int) -> pa.Array:
        """Return milliseconds; NULL for a missing text and for one that is no time."""
        found, values = kept.found[rows], kept.begin[rows]
        texts = found & kept.text[rows]
        if texts.any():
            which = np.flatnonzero(texts)
            ms, right = iso8601_ms(
                _texts(data, kept, rows[which]).cast(pa.string()),
                common_only=self._settings.rules_version < 2,
            )
            values[which] = ms
            found[which] = right
        return pa.array(values, mask=~found)


_plans: SchemaCache[tuple[WriterSchema, AssemblySettings], Plan | str] = SchemaCache()


def _plan(schema: WriterSchema, settings: AssemblySettings) -> Plan | str:
    """Return the plan of a schema, or what is wrong with a schema that has none."""
    if (found := _plans.get((schema, settings))) is None:
        found = _made(schema, settings)
        _plans.put((schema, settings), found, schema.chars)
    return found


def _made(schema: WriterSchema, settings: AssemblySettings) -> Plan | str:
    try:
        return plan_of(schema, wanted_fields(settings), times_are_text=settings.time_format == "iso8601")
    except SchemaUnusableError as error:
        return str(error)


def _texts(data: memoryview, kept: Kept, rows: Int) -> pa.Array:
    """Return the texts of some rows; NULL for a missing text and for one that is not UTF-8."""
    found, symbol = kept.found[rows], kept.symbol[rows]
    in_data = found & ~symbol
    raw = gathered(data, kept.begin[rows], np.where(in_data, kept.size[rows], 0), in_data)
    texts = as_text(raw)
    if symbol.any():
        named = pa.array(kept.symbols, pa.large_string()).take(
            pa.array(np.where(symbol, kept.begin[rows], 0))
        )
        texts = pc.if_else(pa.array(symbol), named, texts)
    return texts
