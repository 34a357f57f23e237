"""Pieces of a column's bytes as a column of their own. (Arrow's binary_slice fails on some columns, 26.0: "Negative buffer resize".)"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int = npt.NDArray[np.int64]

_ROWS = 1 << 15  # so that the places of the bytes fit into the processor's cache


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
