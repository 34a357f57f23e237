"""Encode arrays as bytes, and decode them. Every part begins at a multiple of 8. Damaged bytes never make a reader read past their end."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.parsing.column_bytes import views

_ALIGNMENT = 8


def aligned(parts: Iterable[bytes | memoryview | npt.NDArray[Any]]) -> list[bytes | memoryview]:
    """Return all parts as bytes, each padded to the alignment. Copies only arrays that are not contiguous."""
    out: list[bytes | memoryview] = []
    for part in parts:
        data = np.ascontiguousarray(part).view(np.uint8).data if isinstance(part, np.ndarray) else part
        out += [data, bytes(-len(data) % _ALIGNMENT)]
    return out


def texts(column: pa.Array) -> list[memoryview | npt.NDArray[Any]]:
    """Return a large string or binary array as parts: which elements are valid, the bounds of these, and their bytes.

    Equal arrays have equal parts.
    """
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    bounds, data = views(column.drop_null() if column.null_count else column)
    return [valid.astype(np.uint8), (bounds - bounds[0]).astype("<i8"), data[bounds[0] : bounds[-1]]]


class BinaryReader:
    """Reads the parts in the order in which they were written. Raises DamagedStateError if the bytes cannot be what was written."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    @property
    def is_at_end(self) -> bool:
        """Whether all parts were taken."""
        return self._at >= len(self._data)

    def take(self, size: int) -> memoryview:
        """The next part."""
        begin, self._at = self._at, self._at + size + -size % _ALIGNMENT
        if size < 0 or self._at > len(self._data):
            raise DamagedStateError("it is cut off")
        return self._data[begin : begin + size]

    def array(self, kind: Any, count: int) -> npt.NDArray[Any]:
        """The next part as numbers."""
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize), kind)

    def bounds(self, count: int, end: int | None = None, *, checked: bool = True) -> npt.NDArray[np.int64]:
        """Return the next part as the bounds of `count` adjacent ranges from 0 to `end`. `checked`: False checks the first bound only."""
        found = self.array("<i8", count + 1)
        wrong = checked and ((found[1:] < found[:-1]).any() or (end is not None and found[-1] != end))
        if found[0] != 0 or wrong:
            raise DamagedStateError("its bounds are out of order, or beyond its end")
        return found

    def texts(self, count: int, kind: pa.DataType, *, checked: bool = True) -> pa.Array:
        """Return the array of which `texts` made the next parts.

        `checked`: if False, the caller must check a value's bounds before reading it.
        """
        valid = self.array(np.uint8, count).astype(bool)
        n_valid = int(np.count_nonzero(valid))
        bounds = self.bounds(n_valid, checked=checked or n_valid < count)
        data = self.take(int(bounds[-1]))
        given = pa.Array.from_buffers(kind, n_valid, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
        if n_valid == count:
            return given
        return given.take(pa.array(np.cumsum(valid) - 1, mask=~valid)) if n_valid else pa.nulls(count, kind)
