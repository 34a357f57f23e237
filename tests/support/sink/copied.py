"""Reads what the sink writes with COPY. Format: PostgreSQL documentation, COPY, "Binary Format"; arrays: `array_recv`."""

from struct import Struct

_COUNT, _INT4, _ARRAY, _DIMENSION = Struct(">h"), Struct(">i"), Struct(">iii"), Struct(">ii")


def fields(row: bytes) -> list[bytes | None]:
    """Return the fields of one row, of which nothing may be left over."""
    (count,) = _COUNT.unpack_from(row)
    return elements(row[_COUNT.size :], count)


def array(field: bytes) -> list[bytes | None]:
    """Return the elements of a one-dimensional array."""
    dimensions, _, _ = _ARRAY.unpack_from(field)
    if dimensions == 0:
        assert len(field) == _ARRAY.size
        return []
    assert dimensions == 1
    count, lower_bound = _DIMENSION.unpack_from(field, _ARRAY.size)
    assert lower_bound == 1
    return elements(field[_ARRAY.size + _DIMENSION.size :], count)


def elements(data: bytes, count: int) -> list[bytes | None]:
    """Return so many fields or array elements, of which nothing may be left over."""
    found: list[bytes | None] = []
    at = 0
    for _ in range(count):
        (size,) = _INT4.unpack_from(data, at)
        at += _INT4.size
        found.append(None if size == -1 else data[at : at + size])
        assert size >= -1
        assert at + max(size, 0) <= len(data), "an element goes beyond the end"
        at += max(size, 0)
    assert at == len(data), "bytes are left over"
    return found


def int8s(data: bytes, count: int) -> list[int]:
    """Return bigint elements, none of them NULL."""
    return [int.from_bytes(each or b"", signed=True) for each in elements(data, count)]
