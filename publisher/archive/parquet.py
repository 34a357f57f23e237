"""Converts rows of `session_output` to Parquet and back. The only module that imports Arrow's tables.

The columns are those of the table, under the same names, with these changes: `committed_at` is the time of the batch's commit; `was_parked`
tells that the row was parked, so that it was sent only if a later batch has a copy of it; `headers` is a list of JSON texts.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from publisher.archive.files import ArchiveDamagedError
from publisher.protocol.stored_row import StoredRow
from service.errors import reason_of

SCHEMA = pa.schema(
    [
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("session_key", pa.string(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("lane", pa.int32(), nullable=False),
        pa.field("revision", pa.int32(), nullable=False),
        pa.field("was_parked", pa.bool_(), nullable=False),
        pa.field("session_topic_ids", pa.list_(pa.string()), nullable=False),
        pa.field("session_partitions", pa.list_(pa.int32()), nullable=False),
        pa.field("session_starts", pa.list_(pa.int64()), nullable=False),
        pa.field("session_ends", pa.list_(pa.int64()), nullable=False),
        pa.field("session_started_ms", pa.list_(pa.int64()), nullable=False),
        pa.field("session_ended_ms", pa.list_(pa.int64()), nullable=False),
        pa.field("session_events", pa.list_(pa.int32()), nullable=False),
        pa.field("session_outputs", pa.list_(pa.int32()), nullable=False),
        pa.field("topics", pa.list_(pa.string()), nullable=False),
        pa.field("values", pa.list_(pa.binary()), nullable=False),
        pa.field("keys", pa.list_(pa.binary())),
        pa.field("headers", pa.list_(pa.string())),
        pa.field("partitions", pa.list_(pa.int32())),
        pa.field("timestamps_ms", pa.list_(pa.int64())),
    ]
)

_GROUP_BYTES = 32_000_000
_GROUP_ROWS = 20_000


def table_of(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows as a table. Raises ArchiveDamagedError if a value does not fit its column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    try:
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ArchiveDamagedError(f"a row does not fit the archive's columns: {reason_of(error)}") from error


@dataclass(slots=True)
class RowGroup:
    """The rows of the next row group."""

    rows: list[Sequence[Any]] = field(default_factory=list)
    bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the next row must go into another group."""
        return self.bytes >= _GROUP_BYTES or len(self.rows) >= _GROUP_ROWS

    def add(self, row: Sequence[Any], size: int) -> None:
        """Add a row of about `size` bytes."""
        self.rows.append(row)
        self.bytes += size

    def table(self) -> pa.Table:
        """Return the rows as a table, as `table_of` does."""
        return table_of(self.rows)


def rows_of(table: pa.Table) -> Iterator[StoredRow]:
    """Yield the rows of a table with all columns."""
    return map(StoredRow._make, zip(*(column.to_pylist() for column in table.columns), strict=True))


class Contents:
    """Counts and digest of the rows of a file. They are the same for the same row groups, whatever wrote or compressed the file."""

    def __init__(self) -> None:
        self._digest = sha256()
        self.rows = self.sessions = self.outputs = self.output_bytes = 0
        self.first_batch: int | None = None
        self.last_batch = 0
        self.committed_from: datetime | None = None
        self.committed_to: datetime | None = None

    def add(self, table: pa.Table) -> None:
        """Add a row group."""
        if not table.num_rows:
            return
        for name, column in zip(table.column_names, table.columns, strict=True):
            self._digest.update(f"{name}:{table.num_rows};".encode())
            _feed(self._digest, _one(column))
        self.rows += table.num_rows
        self.sessions += pc.sum(pc.list_value_length(table["session_ends"])).as_py()
        self.outputs += pc.sum(pc.list_value_length(table["topics"])).as_py()
        self.output_bytes += pc.sum(pc.binary_length(pc.list_flatten(table["values"]))).as_py() or 0
        batches, times = pc.min_max(table["batch_id"]).as_py(), pc.min_max(table["committed_at"]).as_py()
        self.first_batch = batches["min"] if self.first_batch is None else self.first_batch
        self.last_batch = batches["max"]
        self.committed_from = min(self.committed_from or times["min"], times["min"])
        self.committed_to = max(self.committed_to or times["max"], times["max"])

    def digest(self) -> str:
        """Return the digest in hexadecimal."""
        return self._digest.hexdigest()

    def counts(self) -> tuple[int, int, int, int]:
        """Return rows, sessions, outputs and bytes of values."""
        return self.rows, self.sessions, self.outputs, self.output_bytes


class FileWriter:
    """Writes one file, row group after row group, and digests what it writes."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = _Digesting(sink)
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), SCHEMA, compression="zstd")
        self.contents = Contents()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # Without this, Arrow would write the file's end later, when it closes the file.
            with suppress(Exception):
                self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Write a row group. Raises OSError."""
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.contents.add(table)

    @property
    def size(self) -> int:
        """How many bytes have been written."""
        return self._sink.size

    def close(self) -> tuple[int, str]:
        """Write the file's end; return its size and digest. Raises OSError."""
        self._writer.close()
        return self._sink.size, self._sink.digest.hexdigest()


class _Digesting:
    """The sink that Arrow writes to. Passes the bytes on to a file, and digests them."""

    closed = False

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.digest = sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._sink.write(view)
        self.digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        """Do nothing: the caller that opened the file closes it."""


def row_groups(source: BinaryIO, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield a file's row groups. Raises ArchiveDamagedError, OSError."""
    with _damaged():
        file = _opened(source)
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns)


def matching(
    source: BinaryIO, keys: Sequence[str] | None
) -> Iterator[tuple[list[StoredRow], tuple[int, str]]]:
    """Yield, for each row group, its rows of these session keys (None: of all), and the row key of the group's last row, wanted or not.

    Raises ArchiveDamagedError, OSError.
    """
    with _damaged():
        file = _opened(source)
        wanted = None if keys is None else pa.array(keys, pa.string())
        for group in range(file.num_row_groups):
            row_keys = file.read_row_group(group, columns=["batch_id", "session_key"])
            last = row_keys["batch_id"][-1].as_py(), row_keys["session_key"][-1].as_py()
            if wanted is None:
                yield list(rows_of(file.read_row_group(group))), last
                continue
            # Most groups have none of the keys; their wide columns are not read.
            mask = pc.is_in(row_keys["session_key"], value_set=wanted)
            found = pc.any(mask).as_py()
            yield list(rows_of(file.read_row_group(group).filter(mask))) if found else [], last


def _opened(source: BinaryIO) -> pq.ParquetFile:
    file = pq.ParquetFile(source, pre_buffer=False)
    if not file.schema_arrow.equals(SCHEMA):
        raise ArchiveDamagedError("the file has other columns than this release reads")
    return file


@contextmanager
def _damaged() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ArchiveDamagedError(f"the file cannot be read as Parquet: {error}") from error


def without(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows of other session keys, and the rows of these keys."""
    mask = pc.is_in(table["session_key"], value_set=pa.array(keys, pa.string()))
    return table.filter(pc.invert(mask)), table.filter(mask)


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _feed(digest: Any, array: pa.Array) -> None:
    """Digest an array's nulls, lengths and values, independently of their layout in Arrow's buffers."""
    digest.update(_plain(array.is_valid().cast(pa.uint8())))
    if pa.types.is_list(array.type):
        digest.update(_plain(pc.list_value_length(array).fill_null(0)))
        _feed(digest, pc.list_flatten(array))
    elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        # A null may have bytes in the buffer.
        filled = array.cast(pa.binary()).fill_null(b"")
        digest.update(_plain(pc.binary_length(filled)))
        _, offsets, data = filled.buffers()
        if data is not None and len(filled):
            ends = memoryview(offsets).cast("i")
            digest.update(memoryview(data)[ends[filled.offset] : ends[filled.offset + len(filled)]])
    elif pa.types.is_boolean(array.type):
        digest.update(_plain(array.cast(pa.uint8()).fill_null(0)))
    else:
        digest.update(_plain(array.cast(pa.int64()).fill_null(0)))


def _plain(array: pa.Array) -> memoryview:
    """Return the bytes of an array without nulls, little-endian as in Arrow's buffer."""
    data = array.buffers()[1]
    if data is None:
        return memoryview(b"")
    width = array.type.bit_width // 8
    return memoryview(data)[array.offset * width : (array.offset + len(array)) * width]
