"""A row of `session_output` with all its columns, as in the archive. Imports no Parquet library."""

from datetime import datetime
from typing import NamedTuple

import orjson

from publisher.protocol.records import Row


class StoredRow(NamedTuple):
    """The columns in the archive's order. `committed_at`: None if the ledger does not have the batch."""

    batch_id: int
    session_key: str
    committed_at: datetime | None
    lane: int
    revision: int
    was_parked: bool
    session_topic_ids: list[str]
    session_partitions: list[int]
    session_starts: list[int]
    session_ends: list[int]
    session_started_ms: list[int]
    session_ended_ms: list[int]
    session_events: list[int]
    session_outputs: list[int]
    topics: list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[str | None] | None
    partitions: list[int | None] | None
    timestamps_ms: list[int | None] | None

    def output_bytes(self) -> int:
        """Return the bytes of all values."""
        return sum(len(value) for value in self.values if value is not None)

    def row(self) -> Row:
        """Return the row as a replay reads it from Postgres. Raises ValueError for headers that are not JSON."""
        headers = self.headers
        return Row(
            self.batch_id,
            self.session_key,
            self.revision,
            self.session_topic_ids,
            self.session_partitions,
            self.session_ends,
            self.session_outputs,
            self.topics,
            self.values,
            self.keys,
            None if headers is None else [None if each is None else orjson.loads(each) for each in headers],
            self.partitions,
            self.timestamps_ms,
        )
