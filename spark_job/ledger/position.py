"""A position: how far the input was read, and what is open there. Only this module reads the current position.

The current position is that of the newest stream row of the newest generation; if the generation has none yet, its start. Newest means
the greatest batch id, never Spark's batch number, which begins at 0 with each run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import dict_row

from db.connection import Connection
from db.statements import queries
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.generations import Generation, newest_generation
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.rules_lineage import Lineage

_LEDGER = queries("spark_job", "ledger")


@dataclass(frozen=True)
class StreamRow:
    """The ledger's row of a batch."""

    batch_id: int
    end: Offsets
    open: OpenPartitions
    created_at: datetime


@dataclass(frozen=True)
class InputPosition:
    """The position of a generation."""

    generation: Generation
    newest: StreamRow | None
    """Its newest stream row; None if it has none yet."""

    @property
    def end(self) -> Offsets:
        """How far it has read, exclusive. Names every known partition."""
        return self.newest.end if self.newest else self.generation.start

    @property
    def open(self) -> OpenPartitions:
        """What is open there."""
        return self.newest.open if self.newest else self.generation.open

    @property
    def batch_id(self) -> int | None:
        """The newest stream batch of the generation."""
        return self.newest.batch_id if self.newest else None

    @property
    def safe_offsets(self) -> Offsets:
        """`safe` of every known partition."""
        return self.open.safe(self.end)

    def safe_arrays(self) -> dict[str, list[Any]]:
        """Return the safe offsets as a statement's parameters: parallel lists `topic_ids`, `partitions` and `safe`."""
        safe = self.safe_offsets
        return {
            "topic_ids": [where.topic_id for where in safe],
            "partitions": [where.partition for where in safe],
            "safe": list(safe.values()),
        }

    @property
    def lineage(self) -> Lineage:
        """Which assembly rules apply to which offset before the position."""
        of = self.generation
        return of.lineage.followed(of.assembly, of.start, self.safe_offsets)

    def safe(self, where: TopicPartition) -> int:
        """The first offset that Kafka must still have: where the partition's oldest open session begins, or its end if none is open."""
        return self.open.safe_at(where, self.end.at(where))


def read(connection: Connection) -> InputPosition | None:
    """Return the current position, None in an empty outbox. If a decision depends on it, read it under the writer lock."""
    generation = newest_generation(connection)
    if generation is None:
        return None
    return InputPosition(generation, newest_row(connection, generation.number))


def read_before(connection: Connection, bounds: Offsets) -> InputPosition | None:
    """Return the newest position that has read nothing at these offsets or above; None if the ledger has none.

    The newest generation with such a position counts. Within a generation ends only grow, so that a binary search reads
    few of its rows.
    """
    generation = newest_generation(connection)
    while generation is not None:
        row = _row_before(connection, generation.number, bounds)
        if row is not None or _is_before(generation.start, bounds):
            return InputPosition(generation, row)
        generation = newest_generation(connection, before=generation.number)
    return None


def before_batch(connection: Connection, generation: int, batch_id: int) -> InputPosition | None:
    """Return the position of a generation before a batch of it; None if there is no such generation."""
    of = newest_generation(connection, before=generation + 1)
    if of is None:
        return None
    where = {"generation": of.number, "batch_id": batch_id - 1}
    return InputPosition(of, _row(connection, _LEDGER["stream_row"], where))


def _row_before(connection: Connection, generation: int, bounds: Offsets) -> StreamRow | None:
    span = connection.execute(_LEDGER["stream_span"], {"generation": generation}).fetchone()
    assert span is not None
    found = None
    low, high = span
    while low is not None and low <= high:
        middle = (low + high) // 2
        row = _row(connection, _LEDGER["stream_row"], {"generation": generation, "batch_id": middle})
        if row is None or _is_before(row.end, bounds):  # None: retention has just removed it
            found, low = row or found, middle + 1
        else:
            high = row.batch_id - 1
    return found


def _is_before(end: Offsets, bounds: Offsets) -> bool:
    return all(end.at(where) <= offset for where, offset in bounds.items())


def newest_row(connection: Connection, generation: int) -> StreamRow | None:
    """Return the newest stream row of a generation; None if it has none."""
    return _row(connection, _LEDGER["newest_stream"], {"generation": generation})


def _row(connection: Connection, query: LiteralString, parameters: Mapping[str, int]) -> StreamRow | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query, parameters).fetchone()
    if row is None:
        return None
    return StreamRow(
        row["batch_id"],
        Offsets.from_json(row["end_offsets"]),
        OpenPartitions.from_json(row["open_state"]),
        row["created_at"],
    )


def with_added(end: Offsets, topics: Mapping[str, str], earliest: Offsets) -> Offsets:
    """Return a former position's end with the partitions added to its topics since: they are read from 0 on."""
    return Offsets({**{where: 0 for where in earliest if where.topic_id in topics}, **end})


def deleted(end: Offsets, opened: OpenPartitions, earliest: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets that a position still needs and that Kafka's retention has deleted: {partition: [first, end)}.

    A partition that `end` does not name begins at its earliest record.
    """
    safe = opened.safe(end)
    return {
        where: (safe[where], first) for where, first in earliest.items() if safe.get(where, first) < first
    }
