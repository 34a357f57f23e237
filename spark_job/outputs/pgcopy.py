"""Postgres' binary COPY format, as far as the outbox needs it.

Executors encode a session's fields, and the array *elements* of a dead letter. The driver makes rows of them, and joins several sessions of
one key into one row without decoding an element. Format: PostgreSQL documentation, COPY, "Binary Format"; arrays: `array_recv`.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

INT4, INT8, TEXT, BYTEA, JSONB = 23, 20, 25, 17, 3802  # type oids, fixed in pg_type.dat

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"

_LENGTH = Struct(">i").pack
_COUNT = Struct(">h").pack
_INT4 = Struct(">ii").pack
_INT8 = Struct(">iq").pack
_ARRAY = Struct(">iiiii").pack
_EMPTY_ARRAY = Struct(">iii").pack


def data(value: bytes) -> bytes:
    """Return one text or bytea field or array element."""
    return _LENGTH(len(value)) + value


def all_data(values: Sequence[bytes]) -> bytes:
    """Return the elements of a text or bytea array without NULLs."""
    return b"".join([_LENGTH(len(value)) + value for value in values])


def nullable(value: bytes | None) -> bytes:
    """Return one text or bytea field or array element that may be NULL."""
    return NULL if value is None else _LENGTH(len(value)) + value


def jsonb(value: bytes | None) -> bytes:
    """Return one jsonb array element from JSON text; the first byte is the format's version."""
    return NULL if value is None else _LENGTH(len(value) + 1) + b"\x01" + value


def int4(value: int) -> bytes:
    """Return one integer field or array element."""
    return _INT4(4, value)


def int8(value: int) -> bytes:
    """Return one bigint field or array element."""
    return _INT8(8, value)


def int4s(values: Iterable[int | None]) -> bytes:
    """Return integer array elements."""
    return b"".join([NULL if v is None else _INT4(4, v) for v in values])


def int8s(values: Iterable[int | None]) -> bytes:
    """Return bigint array elements."""
    return b"".join([NULL if v is None else _INT8(8, v) for v in values])


def array(oid: int, count: int, elements: bytes) -> bytes:
    """Return a one-dimensional array field from `count` encoded elements."""
    if count == 0:
        return _LENGTH(12) + _EMPTY_ARRAY(0, 0, oid)
    return _LENGTH(20 + len(elements)) + _ARRAY(1, 1, oid, count, 1) + elements


def count(fields: int) -> bytes:
    """Return the head of a tuple: how many fields follow."""
    return _COUNT(fields)
