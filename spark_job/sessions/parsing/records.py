"""Read a partition's new records: well-formed events as columns, the others as `malformed` dead letters.

Whether a record is malformed depends only on the record, the settings and the given schemas. assembly/schemas.py judges the
schemas that are missing or unusable.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from contract.session_keys import MAX_KEY_BYTES
from service.formats.writer import NO_SCHEMAS, Schemas
from spark_job.sessions.errors import InputSchemaError
from spark_job.sessions.events import END, ENTRY, START, Events
from spark_job.sessions.parsing.column_bytes import as_dictionary, as_text, text_of
from spark_job.sessions.parsing.fields import ReadFields, ValueDecoder
from spark_job.sessions.parsing.formats import decoder_of
from spark_job.sessions.parsing.json_documents import at
from spark_job.sessions.parsing.schema_id_heads import with_heads
from spark_job.sessions.parsing.times import iso8601_ms
from spark_job.sessions.result import DeadLetter
from spark_job.sessions.settings import ANY_TYPE, MAX_TS_MS, MIN_TS_MS, AssemblySettings, FieldPath

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

MAX_TYPE_BYTES = 1024
"""Longest type of an entry, if entries may have any type."""
_SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Records:
    """New records, malformed ones included and clock records excepted, in offset order."""

    events: Events
    """For malformed records only the offset is valid."""
    key: pa.DictionaryArray
    well_formed: Bool
    letters: list[DeadLetter]
    clock_ts: Int
    """The time that each record gives the clock: no later than the broker's, if the broker has set the record's time."""
    by_broker: Bool | None
    """Whether the broker has set each event's time (AssemblySettings.trusts_broker_times); None: of no event."""


def read_records(new: pa.Table, settings: AssemblySettings, schemas: Schemas = NO_SCHEMAS) -> Records:
    """Decode and check every record. `schemas`: of the ids that occur, for formats that have some.

    Raises InputSchemaError if a column is missing or of another type, or the offsets do not ascend.
    """
    columns = _columns(new, settings)
    decoder = decoder_of(settings, schemas)
    wide = _Wide(decoder.decode(columns.payload), len(new))

    types: pa.LargeStringArray = columns.type if settings.type_path is None else wide.text(settings.type_path)
    kind = _kinds(types, settings)

    keys: pa.LargeStringArray = columns.key if settings.key_path is None else wide.text(settings.key_path)
    key = as_dictionary(keys)
    good = wide.present & columns.present & (kind >= 0) & _good_keys(key)

    event_id = columns.event_id if settings.event_id_path is None else wide.text(settings.event_id_path)
    if event_id is not None:
        good &= _true(event_id.is_valid())
        event_id = event_id.cast(pa.large_binary())

    ts = columns.ts
    if settings.time_path is not None:
        ts, timed = wide.times(settings)
        good &= timed
    good &= (ts >= MIN_TS_MS) & (ts <= MAX_TS_MS)

    bad = np.flatnonzero(~good)
    letters = _malformed(new, columns, bad, settings, decoder, wide) if len(bad) else []
    kept_types = types.cast(pa.large_binary()) if settings.keeps_types else None
    events = Events(columns.offset, ts, kind, columns.payload, event_id, kept_types)
    by_broker = columns.by_broker
    clock_ts = ts if by_broker is None else np.where(by_broker, np.minimum(ts, columns.ts), ts)
    return Records(events, key, good, letters, clock_ts, by_broker if settings.trusts_broker_times else None)


@dataclass(frozen=True, slots=True)
class _Columns:
    offset: Int
    ts: Int
    """The record's own time."""
    payload: pa.LargeBinaryArray
    """As events keep it; empty if the record has no value, or an unreadable one."""
    present: Bool
    """Whether the record has a value that can be read: UTF-8 in JSON, with a valid schema id if that is in a header."""
    key: pa.LargeStringArray | None
    type: pa.LargeStringArray | None
    event_id: pa.LargeStringArray | None
    """`key`, `type` and `event_id` come from the record's key or headers, NULL if not text. None if they do not come from there."""
    by_broker: Bool | None
    """Whether the broker has set each record's time; None: of no record."""


def _columns(new: pa.Table, settings: AssemblySettings) -> _Columns:
    wanted = {"offset": pa.int64(), "ts": pa.int64(), "value": pa.binary()}
    wanted |= {"key": pa.binary()} if settings.key_path is None else {}
    wanted |= {"type": pa.binary()} if settings.type_path is None else {}
    wanted |= {"schema_id": pa.binary()} if settings.schema_id_in_header else {}
    for name, kind in wanted.items():
        if name not in new.column_names:
            raise InputSchemaError(f"the table of new records lacks {name!r}; it has {new.column_names}")
        if new.schema.field(name).type != kind:
            raise InputSchemaError(f"column {name} must be {kind}, not {new.schema.field(name).type}")
    offset = new.column("offset").to_numpy()
    backwards = np.flatnonzero(offset[1:] <= offset[:-1])
    if len(backwards):
        at = backwards[0]
        raise InputSchemaError(
            f"the new records are not in offset order: offset {offset[at + 1]} follows {offset[at]}"
        )
    value = _one(new.column("value").cast(pa.large_binary()))
    if settings.schema_id_in_header:
        value = with_heads(value, _one(new.column("schema_id").cast(pa.large_binary())))
    # The JSON reader does not check encodings, so only text may reach it.
    present = _true((as_text(value) if settings.format == "json" else value).is_valid())
    payload = value if present.all() else pc.if_else(pa.array(present), value, b"")

    def text(name: str, wanted: bool) -> pa.LargeStringArray | None:
        return as_text(_one(new.column(name).cast(pa.large_binary()))) if wanted else None

    return _Columns(
        offset,
        new.column("ts").to_numpy(),
        payload,
        present,
        text("key", settings.key_path is None),
        text("type", settings.type_path is None),
        text("event_id", settings.event_id_path is None and "event_id" in new.column_names),
        _by_broker(new) if settings.rules_version >= 2 else None,
    )


def _by_broker(new: pa.Table) -> Bool | None:
    if "by_broker" not in new.column_names:
        return None
    found = new.column("by_broker").to_numpy().astype(bool)
    return found if found.any() else None


class _Wide:
    """Decoded fields, spread over all records: null if a payload could not be decoded."""

    def __init__(self, fields: ReadFields, n_records: int) -> None:
        self._fields = fields
        self.present = np.zeros(n_records, bool)
        self.present[fields.rows] = True
        self._spread = None
        if len(fields.rows) != n_records:
            places = np.cumsum(self.present) - 1
            self._spread = pa.array(places, mask=~self.present)

    def values(self, path: FieldPath, rows: Int) -> list[Any]:
        """Return a field of some records; None for each in which it is missing or whose payload could not be decoded."""
        places = pa.array(rows)
        places = places if self._spread is None else self._spread.take(places)
        return self._fields.column(path).take(places).to_pylist()  # type: ignore[no-any-return]

    def text(self, path: FieldPath) -> pa.LargeStringArray:
        column = self._fields.column(path).cast(pa.large_string())
        return column if self._spread is None else column.take(self._spread)

    def times(self, settings: AssemblySettings) -> tuple[Int, Bool]:
        assert settings.time_path is not None
        column = self._fields.column(settings.time_path)
        if not pa.types.is_integer(column.type):
            texts = self.text(settings.time_path).cast(pa.string())
            return iso8601_ms(texts, common_only=settings.rules_version < 2)
        column = column if self._spread is None else column.take(self._spread)
        return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), _true(column.is_valid())


def _kinds(types: pa.LargeStringArray, settings: AssemblySettings) -> npt.NDArray[np.int8]:
    """Return the kind of each event; -1 if its type is not in the settings."""
    named = {settings.start: START, **dict.fromkeys(settings.entries, ENTRY), settings.end: END}
    named = {name: kind for name, kind in named.items() if name and name != ANY_TYPE}
    places = pc.index_in(types, value_set=pa.array(list(named), pa.large_string()))
    kinds = np.array([*named.values(), -1], np.int8)
    found = kinds[pc.fill_null(places, len(named)).to_numpy(zero_copy_only=False)]
    if settings.entry == ANY_TYPE:
        size = pc.fill_null(pc.binary_length(types), MAX_TYPE_BYTES + 1).to_numpy(zero_copy_only=False)
        found[(found < 0) & (size <= MAX_TYPE_BYTES)] = ENTRY
    return found  # type: ignore[no-any-return]


def _good_keys(key: pa.DictionaryArray) -> Bool:
    """Return whether each record has a key that is not empty, not too long, and without NUL. Each distinct key is checked once."""
    keys = key.dictionary.cast(pa.large_binary())
    size = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    nul = pc.match_substring(keys, b"\0").to_numpy(zero_copy_only=False)
    good = np.append((size > 0) & (size <= MAX_KEY_BYTES) & ~nul, False)
    codes = pc.fill_null(key.indices, len(keys)).to_numpy(zero_copy_only=False)
    return good[codes]  # type: ignore[no-any-return]


def _malformed(
    new: pa.Table,
    columns: _Columns,
    bad: Int,
    settings: AssemblySettings,
    decoder: ValueDecoder,
    wide: "_Wide",
) -> list[DeadLetter]:
    rows = new.take(pa.array(bad))
    values = rows.column("value").to_pylist()
    headers = {
        name: rows.column(name).to_pylist() if name in rows.column_names else None
        for name in ("key", "type", "event_id")
    }
    payloads = columns.payload.take(pa.array(bad)).to_pylist()
    found = {path: wide.values(path, bad) for path in _field_paths(settings)}
    letters = []
    for at_row, row in enumerate(bad.tolist()):
        value = values[at_row]
        payload = payloads[at_row] if columns.present[row] else None
        given = {name: column[at_row] for name, column in headers.items() if column is not None}
        ts, offset = int(columns.ts[row]), int(columns.offset[row])
        fields = {path: values[at_row] for path, values in found.items()} if wide.present[row] else None
        key, detail = _key(payload, given, fields, settings)
        detail = detail or _why(value, payload, given, ts, fields, decoder, settings)
        types = None if settings.type_path is not None else [text_of(given["type"])]
        letters.append(
            DeadLetter(offset, offset, offset, "malformed", key, detail, [(offset, ts, value)], 1, types)
        )
    return letters


def _key(
    payload: bytes | None,
    given: dict[str, bytes | None],
    fields: dict[FieldPath, Any] | None,
    settings: AssemblySettings,
) -> tuple[str | None, str | None]:
    """Return (a malformed record's key if it is valid, what is wrong with it otherwise)."""
    found: object
    if settings.key_path is None:
        found = given["key"]
        if found is None:
            return None, "no key"
        found = text_of(given["key"])
        if found is None:
            return None, "the key is not UTF-8"
    else:
        if fields is not None:
            found = fields[settings.key_path]
        else:
            found = _key_of_refused(payload, settings.key_path) if settings.format == "json" else None
        if not isinstance(found, str):
            return None, None  # the fault is in the value, not in the key
    wrong = _why_key(found)
    return (None, wrong) if wrong else (found, None)


def _key_of_refused(payload: bytes | None, path: FieldPath) -> object:
    """Return the key in a JSON document in which another field is wrong."""
    try:
        document = orjson.loads(payload or b"")
    except orjson.JSONDecodeError:
        return None
    return at(document, path) if isinstance(document, dict) else None


def _why_key(key: str) -> str | None:
    if not key:
        return "the key is empty"
    if "\0" in key:
        return "the key contains NUL"
    size = len(key.encode())
    return f"the key has {size} bytes, over {MAX_KEY_BYTES}" if size > MAX_KEY_BYTES else None


def _why(
    value: bytes | None,
    payload: bytes | None,
    given: dict[str, bytes | None],
    ts: int,
    fields: dict[FieldPath, Any] | None,
    decoder: ValueDecoder,
    settings: AssemblySettings,
) -> str:
    """Return what is wrong with a malformed record whose key is valid or unknown.

    `payload`: None if the value is missing or not text, or its schema id is invalid. `fields`: None if the payload could not be decoded.
    """
    if value is None:
        return "no value"
    if payload is None:
        in_header = settings.schema_id_in_header
        return "no schema id of four or eight bytes in its header" if in_header else "the value is not UTF-8"
    if fields is None:
        return decoder.refusal_of(payload)
    for path, found in fields.items():
        if found is None:
            return f"no readable field {'.'.join(path)}"
    type_name = text_of(given["type"]) if settings.type_path is None else fields[settings.type_path]
    if type_name is None:
        return "no type"
    if settings.entry == ANY_TYPE and len(str(type_name).encode()) > MAX_TYPE_BYTES:
        return f"its type has over {MAX_TYPE_BYTES} bytes"
    names = tuple(name for name in (settings.start, *settings.entries, settings.end) if name)
    if settings.entry != ANY_TYPE and type_name not in names:
        return f"unknown type {_shown(type_name)}, not one of {names}"
    if settings.event_id_path is None and "event_id" in given and text_of(given["event_id"]) is None:
        return "no event id"
    if settings.time_path is not None:
        return f"field {'.'.join(settings.time_path)} is not a time: {_shown(fields[settings.time_path])}"
    return f"the record's timestamp {ts} is out of range"


def _shown(value: object) -> str:
    """Return a value of the record for people, perhaps cut off; the letter has all of it."""
    return (
        f"{value[:_SHOWN_CHARS]!r}…" if isinstance(value, str) and len(value) > _SHOWN_CHARS else repr(value)
    )


def _field_paths(settings: AssemblySettings) -> list[tuple[str, ...]]:
    paths = (settings.type_path, settings.key_path, settings.event_id_path, settings.time_path)
    return [path for path in paths if path is not None]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _true(flags: pa.Array) -> Bool:
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
