"""The table of a partition's open sessions, and its canonical form."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_job.sessions.events import START, Events
from spark_job.sessions.parsing.column_bytes import views
from spark_job.sessions.state.binary import BinaryReader, aligned, texts

Int = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OpenSessions:
    """One entry for each open session, ordered by start. A session over a limit leaves a tombstone, which has no events."""

    start: Int
    """Offset of the first event (of the part): it identifies the session within its partition."""
    last: Int
    """Offset of the last event, dropped duplicates included."""
    max_ts: Int
    """Greatest time of the session's events, dropped duplicates included."""
    rows: Int
    """Events kept; 0 for a tombstone or a part that a rebuild awaits."""
    n_bytes: Int
    """Of their payloads."""
    irregular: Bool
    """The session must be judged event by event: duplicates were dropped, or it is a tombstone or an awaited part."""
    checksum: Unsigned
    """Of the events' offsets, times, kinds and sizes (chunks.Sums)."""
    payload_crc: Unsigned
    id_crc: Unsigned
    repeated: Int
    """Offset of the newest event that a rebuild would take for the first one of a session: a dropped start, or the last event if any event
    opens a session. -1 if there is none. Rules 1 do not note dropped starts."""
    part: Int
    """The number of the part if a session over a limit comes in parts; otherwise 1."""
    key: pa.LargeStringArray
    start_hash: pa.LargeBinaryArray
    """Hash of the start's payload; empty if the session had no start. Only tombstones have it."""
    start_id: pa.LargeBinaryArray
    """Hash of the start's event id; only tombstones have it."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_remembered(self) -> Bool:
        """Whether each is a tombstone or a later part, which no rebuild finds."""
        return self.is_tombstone | (self.part > 1)

    @cached_property
    def is_tombstone(self) -> Bool:
        """Whether each is a tombstone."""
        return self.start_hash.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    @cached_property
    def held_bytes(self) -> Int:
        """The bytes of each that count against `max_open_bytes`: its key and payloads; 0 for a tombstone, which has another limit."""
        bounds, _ = views(self.key)
        return np.where(self.is_tombstone, 0, self.n_bytes + np.diff(bounds))

    def places(self, starts: Int) -> Int:
        """Return the places of the sessions with these starts, which must exist."""
        return np.searchsorted(self.start, starts)

    def take(self, places: npt.NDArray[Any]) -> "OpenSessions":
        """Return the sessions at some places, in that order."""
        arrow = pa.array(places, pa.int64())
        return OpenSessions(
            **{
                name: column.take(arrow) if isinstance(column, pa.Array) else column[places]
                for name, column in self.columns()
            }
        )

    def buried(self, which: Bool, first: Events) -> "OpenSessions":
        """Return the table with some sessions replaced by their tombstones. `first`: their first events."""
        numbers = {
            name: getattr(self, name).copy()
            for name in ("rows", "n_bytes", "checksum", "payload_crc", "id_crc")
        }
        for column in numbers.values():
            column[which] = 0
        columns = (first.kind == START).tolist(), first.payload.to_pylist(), first.ids().to_pylist()
        begun = [start_hashes(*each) for each in zip(*columns, strict=True)]
        return replace(
            self,
            **numbers,
            irregular=self.irregular | which,
            part=np.where(which, 1, self.part),
            start_hash=_with(self.start_hash, which, [of_payload for of_payload, _ in begun]),
            start_id=_with(self.start_id, which, [of_id for _, of_id in begun]),
        )

    def changed(self, kept: Bool, *entries: "OpenSessions") -> "OpenSessions":
        """Return the kept sessions (`kept`: one flag for each) and those of other tables, ordered by start."""
        return OpenSessions.by_start([self.take(np.flatnonzero(kept)), *entries])

    @classmethod
    def by_start(cls, tables: "Sequence[OpenSessions]") -> "OpenSessions":
        """Return the sessions of several tables, each ordered by start, as one table of the same order."""
        tables = [table for table in tables if len(table)]
        if len(tables) < 2:
            return tables[0] if tables else cls.empty()
        table = cls.joined(tables)
        # A stable sort takes advantage of runs that are already sorted.
        return table.take(np.argsort(table.start, kind="stable"))

    @classmethod
    def joined(cls, tables: "Sequence[OpenSessions]") -> "OpenSessions":
        """Return the sessions of several tables, one table after the other."""
        columns: dict[str, Any] = {}
        for name, column in tables[0].columns():
            of_all = [getattr(each, name) for each in tables]
            columns[name] = (
                pa.concat_arrays(of_all) if isinstance(column, pa.Array) else np.concatenate(of_all)
            )
        return cls(**columns)

    def slice(self, low: int, high: int) -> "OpenSessions":
        """Return the sessions at the places [low, high). Copies nothing."""
        return OpenSessions(
            **{
                name: column.slice(low, high - low) if isinstance(column, pa.Array) else column[low:high]
                for name, column in self.columns()
            }
        )

    @cached_property
    def encoded(self) -> bytes:
        """The canonical form: equal tables have equal bytes. Only sessions with a repeated start take up room for it.

        The function outbox.remembers() of the database reads it, too.
        """
        parts: list[Any] = [np.array([len(self)], "<i8")]
        has_repeated = self.repeated >= 0
        numbers = {
            "irregular": self.irregular + has_repeated * _HAS_REPEATED,
            "rows": self.rows + (self.part - 1 << _ROWS_BITS),
        }
        for name, column in self.columns():
            if name not in _BESIDE:
                number = numbers.get(name, column)
                parts += texts(column) if name in _TEXTS else [number.astype(_NUMBERS[name], copy=False)]
        return b"".join(aligned([*parts, self.repeated[has_repeated].astype("<i8", copy=False)]))

    @classmethod
    def decoded(cls, data: memoryview) -> "OpenSessions":
        """Read what `encoded` returned. Raises DamagedStateError if `data` cannot be that; only the digest proves the contents."""
        return cls.read(BinaryReader(data))

    @classmethod
    def read(cls, reader: BinaryReader) -> "OpenSessions":
        """Read the next parts as a table. Raises as `decoded` does."""
        (count,) = reader.array("<i8", 1).tolist()
        columns: dict[str, Any] = {}
        for field in fields(cls):
            if field.name in _TEXTS:
                columns[field.name] = reader.texts(count, _TEXTS[field.name])
            elif field.name not in _BESIDE:
                columns[field.name] = reader.array(_NUMBERS[field.name], count)
        has_repeated = columns["irregular"] >= _HAS_REPEATED
        columns["repeated"] = np.full(count, -1)
        columns["repeated"][has_repeated] = reader.array("<i8", int(np.count_nonzero(has_repeated)))
        columns["irregular"] = columns["irregular"] % _HAS_REPEATED != 0
        columns["part"] = (columns["rows"] >> _ROWS_BITS) + 1
        columns["rows"] = columns["rows"] & (1 << _ROWS_BITS) - 1
        return cls(**columns)

    def plain(self) -> list[bytes | memoryview]:
        """Return all columns unchanged, one part after the other, so that `mapped` need not copy numbers. Not canonical."""
        parts: list[Any] = [np.array([len(self), self.start_hash.null_count < len(self)], "<i8")]
        for name, column in self.columns():
            if name not in _TEXTS:
                parts.append(column.astype(_NUMBERS[name], copy=False))
            elif name == "key" or parts[0][1]:
                parts += texts(column)
        return aligned(parts)

    @classmethod
    def mapped(cls, reader: BinaryReader) -> "OpenSessions":
        """Read what `plain` returned. Raises DamagedStateError if the parts cannot be that."""
        count, has_tombstones = reader.array("<i8", 2).tolist()
        columns: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in _TEXTS:
                columns[field.name] = reader.array(_NUMBERS[field.name], count)
            elif field.name == "key" or has_tombstones:
                columns[field.name] = reader.texts(count, _TEXTS[field.name])
            else:
                columns[field.name] = pa.nulls(count, _TEXTS[field.name])
        columns["irregular"] = columns["irregular"].view(bool)
        return cls(**columns)

    @classmethod
    def empty(cls) -> "OpenSessions":
        """No sessions."""
        return cls(
            **{name: np.zeros(0, kind) for name, kind in _NUMBERS.items() if name != "irregular"},
            irregular=np.zeros(0, bool),
            **{name: pa.array([], kind) for name, kind in _TEXTS.items()},
        )

    def columns(self) -> list[tuple[str, Any]]:
        """Return (name, column) of each column."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


_NUMBERS = (
    dict.fromkeys(("start", "last", "max_ts", "rows", "n_bytes"), "<i8")
    | {"irregular": "u1"}
    | dict.fromkeys(("checksum", "payload_crc", "id_crc"), "<u8")
    | dict.fromkeys(("repeated", "part"), "<i8")
)
_BESIDE = ("repeated", "part")
"""The canonical form has no whole column of these, because most sessions have the default."""
_HAS_REPEATED = 2
"""Added to `irregular` in the canonical form if the session has a repeated start."""
_ROWS_BITS = 32
"""Bits of `rows` in the canonical form; [session] max_events needs 24. The higher bits hold the number of earlier parts."""
_TEXTS = {"key": pa.large_string(), "start_hash": pa.large_binary(), "start_id": pa.large_binary()}


def _with(column: pa.LargeBinaryArray, which: Bool, values: list[Any]) -> pa.LargeBinaryArray:
    """Return the column with other values at some places."""
    return pc.replace_with_mask(column, pa.array(which), pa.array(values, pa.large_binary()))


def start_hashes(is_start: bool, payload: bytes, event_id: bytes | None) -> tuple[bytes, bytes | None]:
    """Return what a tombstone keeps of its session's first event: hashes of payload and id, or (b"", None) if it is no start."""
    if not is_start:
        return b"", None
    return payload_hash(payload), None if event_id is None else payload_hash(event_id)


def payload_hash(payload: bytes) -> bytes:
    """Return the hash of an event's payload or id."""
    return blake2b(payload, digest_size=16).digest()


def begun_before(encoded: bytes, end: int) -> bytes:
    """Return the encoded table with only the sessions that began below an offset; empty if none did."""
    sessions = OpenSessions.decoded(memoryview(encoded))
    kept = sessions.take(np.flatnonzero(sessions.start < end))
    return kept.encoded if len(kept) else b""
