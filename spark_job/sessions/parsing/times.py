"""ISO 8601 timestamps to epoch milliseconds, a column at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# The patterns check ranges, so the cast refuses only a day beyond the end of its month.
_SHAPE = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?"
    r"(Z|[+-]([01]\d|2[0-3]):?[0-5]\d)?$"
)
_HAS_ZONE = r"(Z|[+-]\d{2}:?\d{2})$"
_BELOW_MS = r"(\.\d{3})\d+"

_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_HOUR, _SIXTY, _FRACTION = r"(?:[01]\d|2[0-3])", r"[0-5]\d", r"(?:[.,](?P<fraction>\d{1,9}))?"
_EXTENDED = (
    r"^(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])[T ]"
    rf"(?P<hour>{_HOUR}):(?P<minute>{_SIXTY})(?::(?P<second>{_SIXTY}){_FRACTION})?"
    rf"(?:(?:Z|(?P<sign>[+-])(?P<hours>{_HOUR})(?::?(?P<minutes>{_SIXTY})(?::(?P<seconds>{_SIXTY}))?)?)(?:\[[^\[\]]+\])?)?$"
)
_BASIC = (
    r"^(?P<year>\d{4})(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])T"
    rf"(?P<hour>{_HOUR})(?P<minute>{_SIXTY})(?:(?P<second>{_SIXTY}){_FRACTION})?"
    rf"(?:Z|(?P<sign>[+-])(?P<hours>{_HOUR})(?P<minutes>{_SIXTY})?(?P<seconds>{_SIXTY})?)?$"
)


def iso8601_ms(texts: pa.Array, *, common_only: bool = False) -> tuple[Int, Bool]:
    """Return epoch milliseconds, and whether each text was a timestamp (if not, ignore the number).

    docs/sessions.md lists the accepted forms. `common_only`: accept only what rules 1 accepted.
    """
    shaped = pc.fill_null(pc.match_substring_regex(texts, _SHAPE), False)
    out = np.zeros(len(texts), np.int64)
    good = np.zeros(len(texts), bool)
    common = shaped.to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(common)
    if len(rows):
        short = pc.replace_substring_regex(texts.take(pa.array(rows)), _BELOW_MS, r"\1")
        zoned = pc.match_substring_regex(short, _HAS_ZONE)
        utc = pc.binary_join_element_wise(short, pc.if_else(zoned, "", "Z"), "")
        _cast(utc, rows, out, good)
    if len(rows) < len(texts) and not common_only:
        others = np.flatnonzero(~common)
        for shape in (_EXTENDED, _BASIC):
            _read(texts.take(pa.array(others)), shape, others, out, good)
    return out, good


def _read(texts: pa.Array, shape: str, rows: Int, out: Int, good: Bool) -> None:
    """Read the texts of a less common shape: rewrite them in the common shape, and subtract the offset."""
    parts = pc.extract_regex(texts, shape)
    found = np.flatnonzero(parts.is_valid().to_numpy(zero_copy_only=False))
    if not len(found):
        return
    parts = parts.take(pa.array(found))
    rows = rows[found]

    def part(name: str) -> pa.StringArray:
        return pc.struct_field(parts, name)

    def number(name: str) -> Int:
        text = pc.if_else(pc.equal(part(name), ""), "0", part(name))
        return text.cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    second = pc.if_else(pc.equal(part("second"), ""), "00", part("second"))
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(part("fraction"), 3, "0"), 0, 3)
    date = pc.binary_join_element_wise(part("year"), part("month"), part("day"), "-")
    clock = pc.binary_join_element_wise(part("hour"), part("minute"), second, ":")
    utc = pc.binary_join_element_wise(date, "T", clock, ".", fraction, "Z", "")
    _cast(utc, rows, out, good)
    ahead_s = (number("hours") * 60 + number("minutes")) * 60 + number("seconds")
    sign = np.where(pc.equal(part("sign"), "-").to_numpy(zero_copy_only=False), -1, 1)
    out[rows] -= sign * ahead_s * 1000


def _cast(texts: pa.Array, rows: npt.NDArray[Any], out: Int, good: Bool) -> None:
    """Cast all texts at once. If that fails, cast those whose day exists in its month; if all do, cast each half."""
    try:
        times = pc.cast(pc.cast(texts, pa.timestamp("ms", "UTC")), pa.int64())
    except pa.ArrowInvalid:
        real = _has_day(texts)
        if not real.all():
            _cast(texts.filter(pa.array(real)), rows[real], out, good)
        elif len(texts) > 1:
            middle = len(texts) // 2
            _cast(texts[:middle], rows[:middle], out, good)
            _cast(texts[middle:], rows[middle:], out, good)
        return
    out[rows] = times.to_numpy(zero_copy_only=False)
    good[rows] = True


def _has_day(texts: pa.Array) -> Bool:
    """Return whether the month of each `YYYY-MM-DD…` has that day."""

    def part(start: int, stop: int) -> Int:
        return pc.utf8_slice_codeunits(texts, start, stop).cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    year, month, day = part(0, 4), part(5, 7), part(8, 10)
    leap = (month == 2) & (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return day <= _DAYS[month] + leap  # type: ignore[no-any-return]
