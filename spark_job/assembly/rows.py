"""What tasks send to the driver, in one flat table: sessions, dead letters, and the state of each partition."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

SESSION: Final = 0
LETTER: Final = 1
PARTITION: Final = 2

SCHEMA: Final = pa.schema(
    [
        ("kind", pa.int8()),
        ("source", pa.int32()),  # number of (topic, partition): input/source.py
        ("session_key", pa.string()),
        ("first_offset", pa.int64()),
        (
            "last_offset",
            pa.int64(),
        ),  # sessions: of the last event in it; letters: dropped duplicates included
        ("closing_offset", pa.int64()),  # letters
        ("lane_hash", pa.int64()),
        ("outputs", pa.int32()),
        ("value_bytes", pa.int64()),  # sessions: of the outputs' values
        ("fields", pa.binary()),  # sessions: the row as it is stored (session_row.py)
        ("events", pa.int32()),  # letters: input events
        ("kept", pa.int32()),  # letters: events kept; encoded array elements of these:
        ("values", pa.binary()),
        ("offsets", pa.binary()),
        ("times", pa.binary()),
        ("types", pa.binary()),  # letters: if types come from a header
        ("reason", pa.string()),
        ("detail", pa.string()),  # letters: for people; partitions: JSON
        ("tombstones", pa.binary()),  # partitions: OpenState.remembered (sessions/state/open_state.py)
    ]
)
"""Columns that a kind does not use are NULL."""

DDL: Final = ", ".join(
    f"`{field.name}` "
    + {
        pa.int8(): "tinyint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.string(): "string",
        pa.binary(): "binary",
    }[field.type]
    for field in SCHEMA
)

Row = dict[str, Any]

BATCH_BYTES = 64 << 20
_LARGE = ("fields", "values", "tombstones", "types", "detail")


class RowBatches:
    """Collects rows, and yields them in batches of bounded size: Spark's buffers and an Arrow column hold no more than 2 GiB."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._size = 0

    def add(self, row: Row) -> Iterator[pa.RecordBatch]:
        """Take a row; yield a batch once there are enough."""
        self._rows.append(row)
        self._size += sum(len(row.get(name) or b"") for name in _LARGE)
        if self._size >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, if any."""
        if self._rows:
            columns = [pa.array([row.get(field.name) for row in self._rows], field.type) for field in SCHEMA]
            yield pa.record_batch(columns, schema=SCHEMA)
            self._rows, self._size = [], 0
