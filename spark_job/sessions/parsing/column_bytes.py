"""The bytes of a column: where each value begins, slices of the values as another column, and values that may be hashed."""

import secrets

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int = npt.NDArray[np.int64]

_SECRET = bytes(secrets.SystemRandom().sample(range(256), 256))
"""A random permutation of all byte values, different in each process."""
_INVERSE = bytes.maketrans(_SECRET, bytes(range(256)))


def views(array: pa.LargeBinaryArray) -> tuple[Int, memoryview]:
    """Return each value's start, the end of the last value, and the data buffer. Copies nothing."""
    _, offsets, data = array.buffers()
    if offsets is None:  # Arrow gives an empty array no buffers
        return np.zeros(1, np.int64), memoryview(b"")
    bounds = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    return bounds, memoryview(data if data is not None else b"")


def as_text(values: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """Return the values as text, NULL for those that are not UTF-8. Decodes value by value only if the column has invalid UTF-8."""
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([text_of(value) for value in values.to_pylist()], pa.large_string())


def text_of(value: bytes | None) -> str | None:
    """Return one value as text; None if it is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def hidden(values: pa.LargeStringArray | pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the values with their bytes replaced by secret ones. Equal values stay equal, different ones stay different.

    Let Arrow hash producers' values only in this form. Its hash function is public, and its hash tables compare a value with all others of
    the same hash: a hundred thousand colliding session keys cost minutes.
    """
    return _translated(values, _SECRET)


def as_dictionary(values: pa.LargeStringArray) -> pa.DictionaryArray:
    """Return what `dictionary_encode` returns, but in a way that no producer can make slow."""
    found = hidden(values).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        found.indices, _translated(found.dictionary, _INVERSE).view(values.type)
    )


def _translated(values: pa.Array, table: bytes) -> pa.LargeBinaryArray:
    bounds, data = views(values)
    low, high = int(bounds[0]), int(bounds[-1])
    buffers = [None, pa.py_buffer(bounds - low), pa.py_buffer(bytes(data[low:high]).translate(table))]
    found = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return pc.if_else(values.is_valid(), found, None) if values.null_count else found


def gathered(
    data: memoryview, begin: Int, size: Int, valid: npt.NDArray[np.bool_] | None = None
) -> pa.LargeBinaryArray:
    """Return data[begin:begin+size] for each row; NULL if the row's `valid` is false; its `size` must then be 0.

    Non-empty slices must be in ascending order and must not overlap. (Arrow 26.0's binary_slice fails on some columns: "Negative
    buffer resize".)
    """
    # Build a zero-copy column of alternating slices and gaps, then take the slices.
    bounds = np.zeros(2 * len(begin) + 1, np.int64)
    bounds[:-1:2] = np.where(size > 0, begin, 0)
    bounds[1::2] = bounds[:-1:2] + size
    bounds = np.maximum.accumulate(bounds)
    assert int((bounds[1::2] - bounds[:-1:2]).sum()) == int(size.sum()), "the pieces are not in order"
    pieces = pa.Array.from_buffers(
        pa.large_binary(), 2 * len(begin), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    every = np.arange(0, 2 * len(begin), 2)
    return pieces.take(pa.array(every, mask=None if valid is None else ~valid))
