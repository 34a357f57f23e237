"""A bucket's open sessions as one binary value: a version tag and two Arrow IPC streams, sessions and their events."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.errors import UnknownStateVersion

VERSION = b"sessions1\n"

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_SESSIONS = pa.schema(
    [
        ("key", pa.large_string()),
        ("source", pa.int32()),
        ("start", pa.int64()),
        ("last", pa.int64()),
        ("max_ts", pa.int64()),
        ("rows", pa.int32()),
        ("irregular", pa.bool_()),
        ("start_hash", pa.binary()),
        ("start_id", pa.large_string()),
    ]
)
_EVENTS = pa.schema(
    [
        ("offset", pa.int64()),
        ("ts", pa.int64()),
        ("kind", pa.int8()),
        ("payload", pa.large_binary()),
        ("event_id", pa.large_string()),
    ]
)


@dataclass(frozen=True, slots=True)
class OpenState:
    """Open sessions, sorted by (key, source), and their events in that order."""

    key: pa.LargeStringArray
    source: Int
    start: Int
    """Offset of the start event: what pins the safe offsets."""
    last: Int
    """Offset of the last event, dropped duplicates included."""
    max_ts: Int
    """Greatest time of the session's events, dropped duplicates included."""
    rows: Int
    """Events kept; 0 for a tombstone."""
    irregular: Bool
    """The session needs the per-event path: its events alone do not tell `last` and `max_ts`, or it is a tombstone."""
    start_hash: pa.BinaryArray
    """Of the start's payload; only tombstones have it."""
    start_id: pa.LargeStringArray
    """The start's event id; only tombstones have it."""
    offset: Int
    ts: Int
    kind: npt.NDArray[np.int8]
    payload: pa.LargeBinaryArray
    event_id: pa.LargeStringArray

    def to_bytes(self) -> bytes:
        """The binary value; None-ness of an empty state is the caller's."""
        sink = pa.BufferOutputStream()
        sink.write(VERSION)
        for schema in (_SESSIONS, _EVENTS):
            columns = [pa.array(getattr(self, name), schema.field(name).type) for name in schema.names]
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_batch(pa.record_batch(columns, schema=schema))
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def from_bytes(cls, state: bytes | None) -> "OpenState":
        """Read what `to_bytes` wrote; None is the empty state. Raises UnknownStateVersion."""
        batches = [pa.table([[]] * len(schema), schema=schema) for schema in (_SESSIONS, _EVENTS)]
        if state is not None:
            if not state.startswith(VERSION):
                raise UnknownStateVersion(bytes(state[: len(VERSION)]), VERSION)
            source = pa.BufferReader(state)
            source.seek(len(VERSION))
            batches = [pa.ipc.open_stream(source).read_all() for _ in batches]
        columns = {}
        for table in batches:
            for name, column in zip(table.column_names, table.columns, strict=True):
                array = column.combine_chunks()
                columns[name] = array if name in _ARROW else array.to_numpy(zero_copy_only=False)
        return cls(**columns | {name: columns[name].astype(np.int64) for name in ("source", "rows")})


_ARROW = {"key", "start_hash", "start_id", "payload", "event_id"}
