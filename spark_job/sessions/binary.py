"""Arrays to bytes and back. Every part begins at a multiple of 8, and nothing that is read can lead beyond the bytes that are there."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.decode import views
from spark_job.sessions.errors import DamagedStateError

_ALIGNMENT = 8


def joined(parts: Iterable[bytes | memoryview | npt.NDArray[Any]]) -> bytes:
    """All parts, each filled up to the alignment."""
    out: list[bytes | memoryview] = []
    for part in parts:
        data = part.tobytes() if isinstance(part, np.ndarray) else part
        out += [data, bytes(-len(data) % _ALIGNMENT)]
    return b"".join(out)


def texts(column: pa.Array) -> list[memoryview | npt.NDArray[Any]]:
    """A large string or binary array as parts: which are valid, their bounds, their bytes. Equal arrays give equal parts."""
    bounds, data = views(column)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return [valid.astype(np.uint8), (bounds - bounds[0]).astype("<i8"), data[bounds[0] : bounds[-1]]]


class Reader:
    """Takes parts out of bytes, one after the other. Raises DamagedStateError where they cannot be what was written."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> memoryview:
        """The next part."""
        begin, self._at = self._at, self._at + size + -size % _ALIGNMENT
        if size < 0 or self._at > len(self._data):
            raise DamagedStateError("it is cut off")
        return self._data[begin : begin + size]

    def array(self, kind: Any, count: int) -> npt.NDArray[Any]:
        """The next part as numbers."""
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize), kind)

    def bounds(self, count: int, end: int | None = None) -> npt.NDArray[np.int64]:
        """The next part as the bounds of `count` ranges that follow each other from 0 on, to `end`."""
        found = self.array("<i8", count + 1)
        if found[0] != 0 or (found[1:] < found[:-1]).any() or (end is not None and found[-1] != end):
            raise DamagedStateError("its bounds lead nowhere")
        return found

    def texts(self, count: int, kind: pa.DataType) -> pa.Array:
        """The next parts as an array, as `texts` gave them."""
        valid = self.array(np.uint8, count).astype(bool)
        bounds = self.bounds(count)
        data = self.take(int(bounds[-1]))
        mask = None if valid.all() else pa.array(valid).buffers()[1]
        return pa.Array.from_buffers(kind, count, [mask, pa.py_buffer(bounds), pa.py_buffer(data)])
