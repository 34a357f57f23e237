"""Reads and writes the tables of a consumer in its own database, over the connection that carries its effects.

The order in a transaction: `begin`, which locks the position's row; `claim`; the effects; `advance`; `commit`. The row's lock is the fence:
while one process holds it, no other can move the position. The locked row has the newest position, whatever a process remembers.
"""

import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from contract.positions import OutboxId
from outbox_consumer.errors import PositionError, SettingsError, TransactionEndedError
from outbox_consumer.outputs import NamedPartition, Output, read_headers

_TABLES = ("position_table", "seen_table", "seen_index", "forgotten_table", "letter_table")
_DIALECTS = {"pyformat": "postgres", "qmark": "sqlite"}
_SAVEPOINT = "outbox_consumer"


class Connection(Protocol):
    """The methods of a DB-API connection that this module uses: psycopg, psycopg2 or sqlite3."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def commit(self) -> Any:
        """Commit."""

    def rollback(self) -> Any:
        """Roll back."""


class Position(NamedTuple):
    """How far a partition is consumed: all records below `next_offset`, in the topic with this id."""

    topic_id: str
    next_offset: int
    leader_epoch: int | None


class LetterKey(NamedTuple):
    """The position of a record that was set aside."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class Store:
    """One consumer's tables. Not thread-safe, like the connection."""

    def __init__(self, connection: Connection, consumer: str, idle_ms: int = 150_000) -> None:
        """`idle_ms`: how long Postgres keeps a transaction in which its process does nothing. Raises SettingsError."""
        module = sys.modules[type(connection).__module__.partition(".")[0]]
        dialect = _DIALECTS.get(getattr(module, "paramstyle", ""))
        if dialect is None:
            raise SettingsError(f"{module.__name__} is none of psycopg, psycopg2 and sqlite3")
        if getattr(connection, "autocommit", False) is True:
            raise SettingsError("the connection commits each statement: connect without autocommit")
        self._queries = dialect_queries(dialect)
        self._connection = connection
        self._consumer = consumer
        self._idle_ms = str(idle_ms)
        # The user's connection may return rows as dictionaries.
        rows = sys.modules.get("psycopg.rows") if module.__name__ == "psycopg" else None
        self._row_factory = None if rows is None else rows.tuple_row

    def prepare(self) -> None:
        """Create the missing tables."""
        if self._all("missing")[0][0]:
            if "alone" in self._queries:
                self._all("alone")
            for table in _TABLES:
                self._run(table)
        self.commit()

    def positions(self, topic: str) -> dict[int, Position]:
        """Return the positions of a topic's partitions, in a separate transaction."""
        rows = self._all("positions", topic=topic)
        self.commit()
        return {partition: Position(*position) for partition, *position in rows}

    def add_positions(self, topic: str, topic_id: str, starts: dict[int, int]) -> None:
        """Store the first positions of partitions, in a separate transaction. Positions that another process has stored stay."""
        for partition, start in sorted(starts.items()):
            self._run(
                "first_position", topic=topic, partition=partition, topic_id=topic_id, next_offset=start
            )
        self.commit()

    def begin(self, partition: NamedPartition) -> Position:
        """Begin a transaction and lock the position. Raises PositionError if there is none."""
        self._cursor().execute(f"SAVEPOINT {_SAVEPOINT}")
        rows = self._all("lock", **partition._asdict(), idle_ms=self._idle_ms)
        if not rows:
            raise PositionError(f"the position of {partition} is gone from outbox_consumer_position")
        return Position(*rows[0][:3])

    def claim(
        self, partition: NamedPartition, outputs: Iterable[Output], *, retried: bool = False
    ) -> dict[OutboxId, int | None]:
        """Remember outputs of a partition, each once. Return the new ones, each with the revision that it replaces.
        `retried`: whether they were set aside, and are consumed later than the outputs that follow them.

        Another process that claims the same output waits until this transaction ends.
        """
        asked = [
            {**identity_of(output.outbox_id), "revision": output.revision, "offset": output.offset}
            for output in outputs
            if output.outbox_id is not None
        ]
        if not asked:
            return {}
        rows = self._all("claim", **partition._asdict(), outputs=json.dumps(asked), retried=retried)
        return {_outbox_id(source, end, output): replaces for source, end, output, replaces in rows}

    def unclaim(self, outbox_id: OutboxId) -> None:
        """Withdraw the claim of an output."""
        self._run("unclaim", **identity_of(outbox_id))

    def forgotten(self, outbox_ids: Iterable[OutboxId]) -> dict[str, int]:
        """Return {source: end of its last session with forgotten outputs} for the sources of these outputs.

        Other sources are not read, because anybody who may write to the topic could invent any number of them.
        """
        sources = sorted({source_of(each) for each in outbox_ids})
        return dict(self._all("forgotten_of", sources=json.dumps(sources))) if sources else {}

    def forget(self, before: datetime) -> None:
        """Forget the outputs that were consumed before a time, in a separate transaction."""
        at = before.strftime("%Y-%m-%d %H:%M:%S+00")
        self._run("note_forgotten", before=at)
        self._run("forget", before=at)
        self.commit()

    def set_aside(self, output: Output, topic_id: str, reason: str) -> None:
        """Store an output as a dead letter."""
        headers = [
            [name, None if value is None else b64encode(value).decode()] for name, value in output.headers
        ]
        self._run(
            "set_aside",
            **LetterKey(output.topic, topic_id, output.partition, output.offset)._asdict(),
            outbox_id=None if output.outbox_id is None else str(output.outbox_id),
            revision=output.revision,
            replay=output.replay,
            key=output.key,
            value=output.value,
            headers=json.dumps(headers),
            timestamp_ms=output.timestamp_ms,
            reason=reason.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0"),
        )

    def advance(self, partition: NamedPartition, next_offset: int, leader_epoch: int | None) -> None:
        """Move the position that `begin` has locked. Raises TransactionEndedError if that transaction has ended."""
        try:
            self._run("advance", **partition._asdict(), next_offset=next_offset, leader_epoch=leader_epoch)
            # After everything else, because SQLite commits when the outermost savepoint is released.
            self._cursor().execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except Exception as error:
            self.rollback()
            raise TransactionEndedError(
                f"the transaction of {partition} was ended or broken inside the loop, which commits by itself: {error}"
            ) from error

    def letters(self) -> list[LetterKey]:
        """Return the keys of the dead letters, in a separate transaction."""
        rows = self._all("letters")
        self.commit()
        return [LetterKey(*row) for row in rows]

    def take(self, letter: LetterKey) -> Output | None:
        """Begin a transaction and take a dead letter; return None if it no longer exists."""
        rows = self._all("take", **letter._asdict())
        if not rows:
            return None
        key, value, headers, timestamp_ms = rows[0]
        output = Output(
            letter.topic,
            letter.partition,
            letter.offset,
            _bytes(key),
            _bytes(value),
            timestamp_ms=timestamp_ms,
        )
        try:
            read_headers(
                output,
                tuple(
                    (name, None if text is None else b64decode(text)) for name, text in json.loads(headers)
                ),
            )
        except ValueError as error:
            output.unreadable = str(error)
        return output

    def discard(self, letter: LetterKey) -> None:
        """Remove a dead letter."""
        self._run("discard", **letter._asdict())

    def commit(self) -> None:
        """Commit the transaction. If this raises, only the tables show the outcome."""
        self._connection.commit()

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._connection.rollback()

    def _cursor(self) -> Any:
        cursor = self._connection.cursor()
        if hasattr(cursor, "row_factory"):
            cursor.row_factory = self._row_factory
        return cursor

    def _run(self, name: str, **parameters: object) -> Any:
        cursor = self._cursor()
        cursor.execute(self._queries[name], {"consumer": self._consumer, **parameters})
        return cursor

    def _all(self, name: str, **parameters: object) -> list[Any]:
        rows: list[Any] = self._run(name, **parameters).fetchall()
        return rows


def source_of(outbox_id: OutboxId) -> str:
    """Return the input partition of an output in the form that the tables have."""
    return f"{outbox_id.topic_id}/{outbox_id.partition}"


def identity_of(outbox_id: OutboxId) -> dict[str, object]:
    """Return the columns of `outbox_consumer_seen` that identify an output."""
    return {"source": source_of(outbox_id), "end_offset": outbox_id.end_offset, "output": outbox_id.output}


def _outbox_id(source: str, end_offset: int, output: int) -> OutboxId:
    topic_id, _, partition = source.rpartition("/")
    return OutboxId(topic_id, int(partition), end_offset, output)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


@cache
def dialect_queries(dialect: str) -> dict[str, str]:
    """Return {name: statement} for the tables; `dialect`: postgres or sqlite."""
    text = files("outbox_consumer").joinpath("sql", f"{dialect}.sql").read_text("utf-8")
    return dict(re.findall(r"-- name: (\w+)\n(.*?)(?=\n-- name: |\Z)", text, re.DOTALL))
