"""Protobuf behind the wire format's head: Google's library parses each message, and the fields that the settings name are taken out.

A field that the message's class does not have is missing, and so is an unset field with presence. An unset text without presence is "".
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from service.formats.faults import fault
from service.formats.proto_budget import always_fits, check_claims
from service.formats.protobuf import enum_name, message_class, why_unusable
from service.formats.wire import HEAD_BYTES, message_path
from service.formats.writer import SchemaUnusableError, WriterSchema
from spark_job.sessions.parsing.fields import ReadColumns, wanted_fields
from spark_job.sessions.parsing.times import iso8601_ms
from spark_job.sessions.settings import AssemblySettings, FieldPath

Int = npt.NDArray[np.int64]
_Getters = tuple[Callable[[bytes], Any], int, Any, list[Callable[[Any], str | int | None]]]
"""(parser of a message, most bytes that need no `check_claims`, the message's descriptor, getter of each field)."""

_MOST_KNOWN = 1_000
"""Greatest number of a schema's messages whose getters are kept: each record may name another of half a million."""


class ProtobufReader:
    """See formats.SchemaReader."""

    def __init__(self, settings: AssemblySettings) -> None:
        self._texts_are_times = settings.time_format == "iso8601"
        self._common_times_only = settings.rules_version < 2
        self._kept = wanted_fields(settings)
        self.wanted: Mapping[FieldPath, pa.DataType] = {
            path: pa.large_string() if kept == "text" else pa.int64() for path, kept in self._kept.items()
        }

    def read(self, payloads: pa.LargeBinaryArray, schema: WriterSchema, rows: Int) -> ReadColumns:
        """See formats.SchemaReader."""
        good: list[int] = []
        found: list[list[Any]] = []
        getters: dict[tuple[int, ...], _Getters | str] = {}
        for row, value in zip(rows.tolist(), payloads.take(pa.array(rows)).to_pylist(), strict=True):
            try:
                found.append(self._fields(value, schema, getters))
            except Exception as error:  # noqa: BLE001 - here, and not at the boundary, which would read all others again
                fault(error)
                continue
            good.append(row)
        columns = list(zip(*found, strict=True)) if found else [()] * len(self.wanted)
        return ReadColumns(
            np.array(good, np.int64),
            {
                path: self._column(list(values), kind)
                for (path, kind), values in zip(self.wanted.items(), columns, strict=True)
            },
        )

    def refusal_of(self, payload: bytes, schema: WriterSchema) -> str:
        """See formats.SchemaReader."""
        try:
            self._fields(payload, schema, {})
        except ValueError as error:
            return str(error)
        return "not of its schema"

    def why_unusable(self, schema: WriterSchema) -> str | None:
        """See formats.SchemaReader."""
        return why_unusable(schema)

    def _fields(
        self, value: bytes, schema: WriterSchema, known: dict[tuple[int, ...], _Getters | str]
    ) -> list[Any]:
        """Return the fields of a value. `known`: getters of the schema's messages by path, or why a message has none; new ones are added.

        Raises ValueError if the value is no message of the schema, a field has another type, or the schema cannot be used.
        """
        where, body = message_path(value[HEAD_BYTES:])
        if (of := known.get(where)) is None:
            if len(known) == _MOST_KNOWN:
                known.clear()
            of = known[where] = self._getters(schema, where)
        if isinstance(of, str):
            raise ValueError(of)
        parse, fits, descriptor, getters = of
        if len(body) > fits:
            check_claims(descriptor, body)
        try:
            message = parse(body)
        except DecodeError as error:
            raise ValueError(f"the value is not of its Protobuf schema: {error}") from error
        return [get(message) for get in getters]

    def _getters(self, schema: WriterSchema, where: tuple[int, ...]) -> _Getters | str:
        try:
            made = message_class(schema, where)
            getters = [self._getter(made.DESCRIPTOR, path, kept) for path, kept in self._kept.items()]
            return made.FromString, always_fits(made.DESCRIPTOR), made.DESCRIPTOR, getters
        except (ValueError, SchemaUnusableError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - of the library, for a schema that nobody has checked
            return fault(error, "not a Protobuf schema")

    def _getter(self, of: Any, path: FieldPath, kept: str) -> Callable[[Any], str | int | None]:
        """Return the function that reads a field of a class's messages."""
        each = of.fields_by_name.get(path[0])
        if (
            len(path) == 1
            and each is not None
            and each.type == each.TYPE_STRING
            and not (each.is_repeated or each.has_presence)
            and (kept == "text" or self._texts_are_times)
        ):
            return attrgetter(path[0])  # same result as `_at`, several times as fast
        return lambda message: self._at(message, path, kept)

    def _at(self, message: Any, path: FieldPath, kept: str) -> str | int | None:
        each = None
        for name in path:
            if not isinstance(message, Message):
                raise ValueError(f"field {'.'.join(path)} has a parent that is no message")
            made = type(message)  # a message's own attributes may be fields
            each = made.DESCRIPTOR.fields_by_name.get(name)
            if each is None or (each.has_presence and not made.HasField(message, name)):
                return None
            message = getattr(message, name)
        if isinstance(message, str) and (kept == "text" or self._texts_are_times):
            return message
        if each is not None and each.enum_type is not None and not each.is_repeated and kept == "text":
            return str(enum_name(each, message))
        if kept == "time":
            if type(message) is int and not self._texts_are_times and message < 2**63:
                return message
            if (
                isinstance(message, Message)
                and type(message).DESCRIPTOR.full_name == "google.protobuf.Timestamp"
            ):
                return self._milliseconds(message, path)
        raise ValueError(f"field {'.'.join(path)} has another type")

    def _milliseconds(self, message: Any, path: FieldPath) -> int:
        """Return a google.protobuf.Timestamp in milliseconds. Its seconds may be any 64-bit number."""
        ms = int(message.seconds) * 1_000 + int(message.nanos) // 1_000_000
        if not -(2**63) <= ms < 2**63:
            raise ValueError(f"field {'.'.join(path)} is no time: {message.seconds} seconds")
        return ms

    def _column(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        if kind != pa.int64():
            return pa.array(values, kind)
        texts = [at for at, value in enumerate(values) if isinstance(value, str)]
        if texts:
            ms, right = iso8601_ms(
                pa.array([values[at] for at in texts], pa.string()), common_only=self._common_times_only
            )
            for at, time, good in zip(texts, ms.tolist(), right.tolist(), strict=True):
                values[at] = time if good else None
        return pa.array(values, kind)
