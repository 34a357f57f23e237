"""Many events in one row: what crosses Spark's shuffle is a few Arrow tables instead of every event.

Before the shuffle each task packs the events of a bucket into one Arrow IPC stream; after it the bucket's worker puts them together again.
So the JVM neither copies, sorts nor converts an event once more: a quarter of its time per event is saved (docs/decisions/0004).
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

DDL = "bucket int, events binary"
_REST = {"value": "raw", "key": "raw_key"}
SCHEMA = pa.schema([("bucket", pa.int32()), ("events", pa.binary())])


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack batches of the columns that `source.py` selects; yield rows of `SCHEMA`. The function of `mapInArrow`.

    Binary columns become text, NULL where they are not UTF-8; the bytes of such values and keys go on in `raw` and `raw_key`.
    """
    for batch in batches:
        if batch.num_rows:
            yield _packed(_as_text(pa.Table.from_batches([batch])))


def unpack(packed: Iterable[bytes]) -> pa.Table:
    """Return the events of one bucket as one table, in no particular order; its columns are those that `pack` got."""
    return pa.concat_tables([pa.ipc.open_stream(stream).read_all() for stream in packed])


def _as_text(table: pa.Table) -> pa.Table:
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_binary(column.type):
            columns[name], rest = _split_by_validity(column)
            if name in _REST:
                columns[_REST[name]] = rest
        else:
            columns[name] = column
    return pa.table(columns)


def _split_by_validity(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """(text, rest): the cast checks the whole column at once; only a column with a fault is looked at value by value."""
    try:
        return column.cast(pa.string()), pa.chunked_array([pa.nulls(len(column), pa.binary())])
    except pa.ArrowInvalid:
        text: list[str | None] = []
        rest: list[bytes | None] = []
        for value in column.to_pylist():
            try:
                text.append(None if value is None else value.decode())
                rest.append(None)
            except UnicodeDecodeError:
                text.append(None)
                rest.append(value)
        return pa.chunked_array([pa.array(text, pa.string())]), pa.chunked_array(
            [pa.array(rest, pa.binary())]
        )


def _packed(table: pa.Table) -> pa.RecordBatch:
    bucket = table.column("bucket").to_numpy()
    order = np.argsort(bucket, kind="stable")
    ordered = bucket[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
    ends = [*starts[1:].tolist(), len(order)]
    events = table.drop_columns(["bucket"]).take(pa.array(order))
    # All streams into one buffer, which then is the column's data as it stands: copying megabytes again costs more than all the rest.
    sink = pa.BufferOutputStream()
    bounds = [0]
    for start, end in zip(starts.tolist(), ends, strict=True):
        with pa.ipc.new_stream(sink, events.schema) as writer:
            writer.write_table(events.slice(start, end - start))
        bounds.append(sink.tell())
    offsets = pa.py_buffer(np.array(bounds, np.int32))
    streams = pa.Array.from_buffers(pa.binary(), len(starts), [None, offsets, sink.getvalue()])
    return pa.record_batch([pa.array(ordered[starts], pa.int32()), streams], schema=SCHEMA)
