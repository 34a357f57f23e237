"""A closed session as a row of `session_output`: its fields after (session_key, batch_id, lane, revision), in COPY's binary format.

The task encodes them, so that the driver only joins bytes. If a key has several sessions in a batch, the driver joins them into one row:
each field is an array, and the arrays of several rows are joined without decoding an element.

A row has no `outbox-id`. The publisher makes it from the topic id, partition, end offset and index here (publisher/protocol/records.py).
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from spark_job.outputs import pgcopy
from spark_job.outputs.encoding import EncodedOutputs
from spark_job.sessions.result import ClosedSession

N_FIELDS = 18
"""Number of fields of a whole row, the first four included."""

# Arrays of one element each: four bigints and two integers.
_ONE_INT8 = (32, 1, 1, pgcopy.INT8, 1, 1, 8)
_ONE_INT4 = (28, 1, 1, pgcopy.INT4, 1, 1, 4)
_NUMBERS = Struct(">" + 4 * "iiiiiiiq" + 2 * "iiiiiiii").pack
_INT = Struct(">i")
_ARRAY = Struct(">iii")
_ONE_DIMENSION = _ARRAY.size + 2 * _INT.size


class SessionPlace:
    """A partition of the input, encoded once for all its sessions."""

    def __init__(self, topic_id: str, partition: int) -> None:
        self._encoded = pgcopy.array(pgcopy.TEXT, 1, pgcopy.data(topic_id.encode()))
        self._encoded += pgcopy.array(pgcopy.INT4, 1, pgcopy.int4(partition))

    def fields(self, session: ClosedSession, outputs: EncodedOutputs) -> bytes:
        """Return the fields of a session of this partition."""
        numbers = _NUMBERS(
            *(*_ONE_INT8, session.start_offset),
            *(*_ONE_INT8, session.end_offset),
            *(*_ONE_INT8, session.started_ms),
            *(*_ONE_INT8, session.ended_ms),
            *(*_ONE_INT4, session.n_events),
            *(*_ONE_INT4, outputs.events),
        )
        n = outputs.events
        return b"".join(
            [
                self._encoded,
                numbers,
                pgcopy.array(pgcopy.TEXT, n, outputs.topics),
                pgcopy.array(pgcopy.BYTEA, n, outputs.values),
                _optional(pgcopy.BYTEA, n, outputs.keys),
                _optional(pgcopy.JSONB, n, outputs.headers),
                _optional(pgcopy.INT4, n, outputs.partitions),
                _optional(pgcopy.INT8, n, outputs.timestamps),
            ]
        )


def joined(fields: Sequence[bytes], outputs: Sequence[int]) -> bytes:
    """Return the fields of one row that holds the sessions of several rows, in order. `outputs`: the number of outputs of each row.

    An array that is NULL in every row stays NULL. An array that is NULL in some rows has NULL elements for their outputs.
    """
    if len(fields) == 1:
        return fields[0]
    arrays = zip(*map(_arrays, fields), strict=True)
    return b"".join([_joined(each, outputs) for each in arrays])


class _Array(NamedTuple):
    oid: int
    length: int
    elements: bytes


def _joined(arrays: Sequence[_Array | None], outputs: Sequence[int]) -> bytes:
    found = [each for each in arrays if each is not None]
    if not found:
        return pgcopy.NULL
    count = sum(n if each is None else each.length for each, n in zip(arrays, outputs, strict=True))
    elements = [
        pgcopy.NULL * n if each is None else each.elements for each, n in zip(arrays, outputs, strict=True)
    ]
    return pgcopy.array(found[0].oid, count, b"".join(elements))


def _arrays(fields: bytes) -> list[_Array | None]:
    """Return the arrays of a row; None for NULL."""
    found: list[_Array | None] = []
    at = 0
    while at < len(fields):
        (size,) = _INT.unpack_from(fields, at)
        at += 4
        if size < 0:
            found.append(None)
            continue
        dimensions, _, oid = _ARRAY.unpack_from(fields, at)
        count = _INT.unpack_from(fields, at + _ARRAY.size)[0] if dimensions else 0
        begin = at + (_ONE_DIMENSION if dimensions else _ARRAY.size)
        found.append(_Array(oid, count, fields[begin : at + size]))
        at += size
    return found


def _optional(oid: int, count: int, elements: bytes | None) -> bytes:
    """Return an array; NULL if no output has a value for it."""
    return pgcopy.NULL if elements is None else pgcopy.array(oid, count, elements)
