"""Reads the tables of consumers, for `publisher audit --consumed` and `publisher trace --consumer`."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Literal, NamedTuple

from contract.positions import OutboxId
from outbox_consumer.store import dialect_queries, identity_of

_ROWS = 10_000
_LETTERS = 20
"""The most records of one output that were set aside and are shown."""
_REASON_CHARS = 10_000


class ConsumerPosition(NamedTuple):
    """How far a consumer is in a partition: it began at `first_offset` and has consumed all records below `next_offset`."""

    consumer: str
    topic: str
    partition: int
    topic_id: str
    first_offset: int
    next_offset: int


class ConsumedOutput(NamedTuple):
    """An output with its greatest consumed revision, and the record from which that was consumed. `at_us`: microseconds since 1970.

    `retried`: whether it had been set aside, and was therefore consumed after the outputs that follow it.
    """

    source: str
    end_offset: int
    output: int
    revision: int
    topic: str
    partition: int
    offset: int
    at_us: int
    retried: bool


class ConsumedAs(NamedTuple):
    """A consumer's state of one output. `set_aside`: why the output was not consumed, None if it was."""

    consumer: str
    revision: int
    topic: str
    partition: int
    offset: int
    at: str
    replaces: int | None = None
    retried: bool = False
    set_aside: str | None = None


class ConsumerTables:
    """The tables of all consumers in one database. `connection` must be in a transaction in which all queries see the same state."""

    def __init__(self, connection: Any, dialect: Literal["postgres", "sqlite"]) -> None:
        self._connection = connection
        self._queries = dialect_queries(dialect)
        self._streams = dialect == "postgres"

    def positions(self) -> list[ConsumerPosition] | None:
        """Return the positions of all consumers; None if there are no such tables."""
        if self._rows("missing")[0][0]:
            return None
        return [ConsumerPosition(*row) for row in self._rows("all_positions")]

    def forgotten(self, consumer: str) -> Iterator[tuple[str, int]]:
        """Yield each source (topic id/partition) with the end of its last session with forgotten outputs."""
        yield from self._stream("forgotten", consumer=consumer)

    def count(self, consumer: str) -> int:
        """Return how many outputs a consumer remembers."""
        return int(self._rows("count", consumer=consumer)[0][0])

    def consumed(self, consumer: str) -> Iterator[ConsumedOutput]:
        """Yield the outputs that a consumer remembers, in no order and in bounded memory."""
        for row in self._stream("consumed", consumer=consumer):
            yield ConsumedOutput._make(row)

    def set_aside(self, consumer: str) -> Iterator[tuple[str, int, str, int, int]]:
        """Yield the outputs among the dead letters: outbox-id, revision, topic, partition, offset."""
        yield from self._stream("kept_aside", consumer=consumer)

    def of_outputs(self, outbox_ids: Sequence[OutboxId]) -> dict[str, list[ConsumedAs]]:
        """Return {outbox-id: each consumer's state of the output}."""
        found: dict[str, list[ConsumedAs]] = {str(each): [] for each in outbox_ids}
        asked = json.dumps([{"outbox_id": str(each), **identity_of(each)} for each in outbox_ids])
        for outbox_id, *row, retried in self._rows("consumed_as", outputs=asked):
            found[outbox_id].append(ConsumedAs(*row)._replace(retried=bool(retried)))
        most = {"rows": _LETTERS, "chars": _REASON_CHARS}
        for outbox_id, *row, reason, letters in self._rows("kept_aside_as", outputs=asked, **most):
            more = f" (with {letters - _LETTERS} older ones)" if letters > _LETTERS else ""
            found[outbox_id].append(ConsumedAs(*row)._replace(set_aside=f"{reason}{more}"))
        return found

    def _rows(self, name: str, **parameters: object) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.execute(self._queries[name], parameters)
        rows: list[Any] = cursor.fetchall()
        return rows

    def _stream(self, name: str, **parameters: object) -> Iterator[Any]:
        cursor = self._connection.cursor(f"outbox_{name}") if self._streams else self._connection.cursor()
        with closing(cursor):
            cursor.execute(self._queries[name], parameters)
            while rows := cursor.fetchmany(_ROWS):
                yield from rows
