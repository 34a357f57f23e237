"""The bytes of a column: where each value has its own, and pieces of them as a column of their own."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int = npt.NDArray[np.int64]

_ROWS = 1 << 15  # so that the places of the bytes fit into the processor's cache


def views(array: pa.LargeBinaryArray) -> tuple[Int, memoryview]:
    """Where each value of an array begins (one more at the end), and the bytes they point into. Copies nothing."""
    _, offsets, data = array.buffers()
    if offsets is None:  # Arrow gives an empty array no buffers
        return np.zeros(1, np.int64), memoryview(b"")
    bounds = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    return bounds, memoryview(data if data is not None else b"")


def as_text(values: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """The values as text, NULL where they are not UTF-8. Only a column with a fault is looked at value by value."""
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([text_of(value) for value in values.to_pylist()], pa.large_string())


def text_of(value: bytes | None) -> str | None:
    """One value as text; None where it is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def gathered(
    data: memoryview, begin: Int, size: Int, valid: npt.NDArray[np.bool_] | None = None
) -> pa.LargeBinaryArray:
    """Return the bytes [begin, begin + size) of `data` for each row; NULL where it is not `valid`, whose size must be 0."""
    text = np.frombuffer(data, np.uint8)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    out = np.empty(int(ends[-1]), np.uint8)
    for low in range(0, len(begin), _ROWS):
        part = slice(low, low + _ROWS)
        first = int(ends[low])
        places = np.repeat(begin[part] - (ends[:-1][part] - first), size[part])
        places += np.arange(len(places))
        out[first : first + len(places)] = text[places]
    validity = None if valid is None or valid.all() else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(
        pa.large_binary(), len(begin), [validity, pa.py_buffer(ends), pa.py_buffer(out)]
    )
