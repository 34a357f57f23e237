"""ISO 8601 timestamps to epoch milliseconds, a column at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Ranges are checked here, so that only a day beyond its month's end is left for the cast to refuse.
_SHAPE = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?"
    r"(Z|[+-]([01]\d|2[0-3]):?[0-5]\d)?$"
)
_HAS_ZONE = r"(Z|[+-]\d{2}:?\d{2})$"
_BELOW_MS = r"(\.\d{3})\d+"


def iso8601_ms(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Epoch milliseconds and whether each text was a timestamp (where not, the number means nothing).

    `YYYY-MM-DDTHH:MM:SS`, a space for the T, up to nine decimals (cut to three), `Z` or an offset; UTC without one.
    """
    shaped = pc.fill_null(pc.match_substring_regex(texts, _SHAPE), False)
    out = np.zeros(len(texts), np.int64)
    good = np.zeros(len(texts), bool)
    rows = np.flatnonzero(shaped.to_numpy(zero_copy_only=False))
    if len(rows):
        short = pc.replace_substring_regex(texts.take(pa.array(rows)), _BELOW_MS, r"\1")
        zoned = pc.match_substring_regex(short, _HAS_ZONE)
        utc = pc.binary_join_element_wise(short, pc.if_else(zoned, "", "Z"), "")
        _cast(utc, rows, out, good)
    return out, good


def _cast(
    texts: pa.Array, rows: npt.NDArray[Any], out: npt.NDArray[np.int64], good: npt.NDArray[np.bool_]
) -> None:
    """Cast all at once; where that fails, halves, down to the single impossible day."""
    try:
        times = pc.cast(pc.cast(texts, pa.timestamp("ms", "UTC")), pa.int64())
    except pa.ArrowInvalid:
        if len(texts) > 1:
            middle = len(texts) // 2
            _cast(texts[:middle], rows[:middle], out, good)
            _cast(texts[middle:], rows[middle:], out, good)
        return
    out[rows] = times.to_numpy(zero_copy_only=False)
    good[rows] = True
