"""Read the schema ids of a column of values in Confluent's wire format (service/formats/wire.py), and of a header column."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.wire import HEAD_BYTES
from spark_job.sessions.parsing.column_bytes import gathered, views
from spark_job.sessions.settings import AssemblySettings

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_HEADER_BYTES = (4, 8)
_ZERO = pa.scalar(b"\0", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


def heads(values: pa.LargeBinaryArray) -> tuple[Int, Bool]:
    """Return (schema id, whether the value begins with a head of the wire format) for each value. Without a head, ignore the id."""
    bounds, data = views(values)
    begin = bounds[:-1]
    text = np.frombuffer(data, np.uint8)
    good = np.diff(bounds) >= HEAD_BYTES
    ids = np.zeros(len(begin), np.int64)
    places = begin[good]
    good[good] = text[places] == 0
    places = begin[good]
    for byte in range(1, HEAD_BYTES):
        ids[good] = ids[good] << 8 | text[places + byte]
    return ids, good


def with_heads(values: pa.LargeBinaryArray, ids: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Prepend the header's schema id to each value, in the wire format. NULL if the value is null or the id is invalid.

    An id in a header has four bytes, or eight of which the first four are zero; big-endian.
    """
    bounds, data = views(ids)
    size = np.diff(bounds)
    fits = np.isin(size, _HEADER_BYTES)
    end = np.where(fits, bounds[1:], 0)
    text = np.frombuffer(data, np.uint8)
    long = fits & (size == _HEADER_BYTES[1])
    for byte in range(_HEADER_BYTES[1], _HEADER_BYTES[0], -1):
        fits[long] &= text[end[long] - byte] == 0
    width = np.where(fits, _HEADER_BYTES[0], 0)
    before = pc.binary_join_element_wise(_ZERO, gathered(data, end - width, width, fits), _NOTHING)
    return pc.binary_join_element_wise(before, values, _NOTHING)


def record_ids(new: pa.Table, settings: AssemblySettings) -> tuple[Int, Int]:
    """Return (rows, schema ids) of the records that name a schema."""
    values = new.column("value").cast(pa.large_binary()).combine_chunks()
    if settings.schema_id_in_header:
        given = new.column("schema_id").cast(pa.large_binary()).combine_chunks()
        values = pc.fill_null(with_heads(values, given), b"")
    ids, good = heads(values)
    rows = np.flatnonzero(good)
    return rows, ids[rows]


def ids_of(values: pa.LargeBinaryArray) -> set[int]:
    """Return the ids of the schemas of some values."""
    ids, good = heads(values)
    return set(np.unique(ids[good]).tolist())
