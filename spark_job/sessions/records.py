"""Read one bucket's new records: well-formed events as columns, the others as `malformed` dead letters.

Whether a record is malformed is a function of the record and the settings alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_job.sessions.decode import Decoder, Fields
from spark_job.sessions.errors import InputSchemaError
from spark_job.sessions.result import DeadLetter
from spark_job.sessions.settings import MAX_KEY_BYTES, MAX_TS_MS, MIN_TS_MS, AssemblySettings
from spark_job.sessions.times import iso8601_ms

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_REQUIRED = {"source": pa.int32(), "offset": pa.int64(), "ts": pa.int64()}


@dataclass(frozen=True, slots=True)
class Records:
    """New records, malformed ones included, in the order given."""

    source: Int
    offset: Int
    ts: Int
    kind: npt.NDArray[np.int8]
    key: pa.DictionaryArray
    payload: pa.LargeBinaryArray
    event_id: pa.LargeStringArray | None
    well_formed: Bool
    letters: list[DeadLetter]


def read_records(new: pa.Table, settings: AssemblySettings) -> Records:
    """Decode and check every record. Raises InputSchemaError where a column is missing or of another type."""
    columns = _columns(new, settings)
    payload = columns.payload
    decoded = _decoder(settings).decode(payload)
    wide = _Wide(decoded, new.num_rows)

    names = pa.array(settings.names, pa.large_string())
    types = _text(new, "type") if settings.type_path is None else wide.text(settings.type_path)
    kind = pc.fill_null(pc.index_in(types, value_set=names), -1).to_numpy(zero_copy_only=False)

    key = columns.key.dictionary_encode()
    good = wide.present & columns.present & (kind >= 0) & _good_keys(key)
    if settings.key_path is not None:
        good &= _true(pc.equal(wide.text(settings.key_path), columns.key))

    event_id = None
    if settings.event_id_path is not None:
        event_id = wide.text(settings.event_id_path)
    elif "event_id" in new.column_names:
        event_id = _text(new, "event_id")
    if event_id is not None:
        good &= _true(event_id.is_valid())

    ts = columns.ts
    if settings.time_path is not None:
        ts, timed = wide.times(settings)
        good &= timed
    good &= (ts >= MIN_TS_MS) & (ts <= MAX_TS_MS)

    bad = np.flatnonzero(~good)
    letters = _malformed(new, columns, bad, settings) if len(bad) else []
    return Records(
        columns.source, columns.offset, ts, kind.astype(np.int8), key, payload, event_id, good, letters
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Columns:
    source: Int
    offset: Int
    ts: Int
    """The record's own time."""
    key: pa.LargeStringArray
    payload: pa.LargeBinaryArray
    """Empty where the record has no value, or one that is not text."""
    present: Bool
    """The record has a value, and it is text."""


def _columns(new: pa.Table, settings: AssemblySettings) -> _Columns:
    wanted = ["source", "offset", "ts", "key", "value", "raw"]
    wanted += ["type"] if settings.type_path is None else []
    missing = [name for name in wanted if name not in new.column_names]
    if missing:
        raise InputSchemaError(f"the table of new records lacks {missing}; it has {new.column_names}")
    for name, kind in _REQUIRED.items():
        if new.schema.field(name).type != kind or new.column(name).null_count:
            raise InputSchemaError(
                f"column {name} must be {kind} without nulls, not {new.schema.field(name).type}"
            )
    value = new.column("value").cast(pa.large_binary())
    present = _true(value.is_valid().combine_chunks())
    # What is not text must not reach the JSON reader, which does not look at encodings.
    payload = value if present.all() else pc.fill_null(value, b"")
    source, offset, ts = (new.column(name).to_numpy().astype(np.int64, copy=False) for name in _REQUIRED)
    return _Columns(source, offset, ts, _text(new, "key"), _one(payload), present)


class _Wide:
    """Decoded fields spread over all records again: null where a payload could not be decoded."""

    def __init__(self, fields: Fields, n_records: int) -> None:
        self._fields = fields
        self.present = np.zeros(n_records, bool)
        self.present[fields.rows] = True
        self._spread = None
        if len(fields.rows) != n_records:
            places = np.cumsum(self.present) - 1
            self._spread = pa.array(places, mask=~self.present)

    def text(self, path: tuple[str, ...]) -> pa.LargeStringArray:
        column = self._fields.column(path).cast(pa.large_string())
        return column if self._spread is None else column.take(self._spread)

    def times(self, settings: AssemblySettings) -> tuple[Int, Bool]:
        assert settings.time_path is not None
        if settings.time_format == "iso8601":
            return iso8601_ms(self.text(settings.time_path).cast(pa.string()))
        column = self._fields.column(settings.time_path)
        column = column if self._spread is None else column.take(self._spread)
        return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), _true(column.is_valid())


def _decoder(settings: AssemblySettings) -> Decoder:
    paths = [
        (path, pa.string())
        for path in (settings.type_path, settings.key_path, settings.event_id_path)
        if path
    ]
    if settings.time_path is not None:
        paths.append((settings.time_path, pa.string() if settings.time_format == "iso8601" else pa.int64()))
    return Decoder(paths)


def _good_keys(key: pa.DictionaryArray) -> Bool:
    """Per record: the key is there, not empty, not too long, without NUL. Each distinct key is looked at once."""
    keys = key.dictionary.cast(pa.large_binary())
    size = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    nul = pc.match_substring(keys, b"\0").to_numpy(zero_copy_only=False)
    good = np.append((size > 0) & (size <= MAX_KEY_BYTES) & ~nul, False)
    codes = pc.fill_null(key.indices, len(keys)).to_numpy(zero_copy_only=False)
    return good[codes]  # type: ignore[no-any-return]


def _malformed(new: pa.Table, columns: _Columns, bad: Int, settings: AssemblySettings) -> list[DeadLetter]:
    rows = new.take(pa.array(bad))
    decoder = _decoder(settings)
    values = rows.column("value").cast(pa.large_binary()).to_pylist()
    raws = rows.column("raw").to_pylist()
    optional = {
        name: rows.column(name).to_pylist() if name in rows.column_names else [None] * len(bad)
        for name in ("type", "event_id", "raw_key")
    }
    optional["key"] = rows.column("key").to_pylist()
    letters = []
    for at_row, row in enumerate(bad.tolist()):
        value, raw = values[at_row], raws[at_row]
        headers = {name: column[at_row] for name, column in optional.items()}
        key = headers["key"]
        detail = _why_key(key, headers["raw_key"], settings)
        shown = key if detail is None else None
        detail = detail or _why(
            value, raw, headers, int(columns.ts[row]), decoder, settings, new.column_names
        )
        offset = int(columns.offset[row])
        kept = [(offset, int(columns.ts[row]), raw if value is None else value)]
        types = [headers["type"]] if settings.type_path is None else None
        source = int(columns.source[row])
        letters.append(DeadLetter(source, offset, offset, offset, "malformed", shown, detail, kept, 1, types))
    return letters


def _why_key(key: str | None, raw_key: bytes | None, settings: AssemblySettings) -> str | None:
    """What is wrong with the key itself; None where it is a key, or where the payload has to tell."""
    if raw_key is not None:
        return "the key is not UTF-8"
    if key is None:
        return None if settings.key_path is not None else "no key"
    if not key:
        return "the key is empty"
    if "\0" in key:
        return "the key contains NUL"
    size = len(key.encode())
    return f"the key has {size} bytes, over {MAX_KEY_BYTES}" if size > MAX_KEY_BYTES else None


def _why(
    value: bytes | None,
    raw: bytes | None,
    headers: dict[str, Any],
    ts: int,
    decoder: Decoder,
    settings: AssemblySettings,
    column_names: list[str],
) -> str:
    """What is wrong with a malformed record whose key is right or unknown."""
    if value is None:
        return "no value" if raw is None else "the value is not UTF-8"
    one = decoder.decode(pa.array([value], pa.large_binary()))
    if not len(one.rows):
        return decoder.why(value)
    found = dict.fromkeys(_field_paths(settings))
    for path in found:
        found[path] = one.column(path)[0].as_py()
        if found[path] is None:
            return f"no field {'.'.join(path)}"
    type_name = headers["type"] if settings.type_path is None else found[settings.type_path]
    if type_name not in settings.names:
        return "no type" if type_name is None else f"unknown type {type_name!r}, not one of {settings.names}"
    if settings.key_path is not None and found[settings.key_path] != headers["key"]:
        return f"field {'.'.join(settings.key_path)} is not the key that Spark read, {headers['key']!r}"
    if settings.event_id_path is None and "event_id" in column_names and headers["event_id"] is None:
        return "no event id"
    if settings.time_path is not None:
        return f"field {'.'.join(settings.time_path)} is not a time: {found[settings.time_path]!r}"
    return f"the record's timestamp {ts} is out of range"


def _field_paths(settings: AssemblySettings) -> list[tuple[str, ...]]:
    paths = (settings.type_path, settings.key_path, settings.event_id_path, settings.time_path)
    return [path for path in paths if path is not None]


def _text(new: pa.Table, name: str) -> pa.LargeStringArray:
    return _one(new.column(name).cast(pa.large_string()))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _true(flags: pa.Array) -> Bool:
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
