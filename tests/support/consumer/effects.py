"""A consumer's own database and its effects: SQLite, whose transactions are real."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from outbox_consumer.loop import Loop
from outbox_consumer.outputs import Output
from outbox_consumer.partitions import Partitions, Start
from outbox_consumer.store import Store
from tests.support.consumer.group import Broker, Member

OPTIONS = {"bootstrap.servers": "none", "group.id": "billing"}


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Database:
    """A file. `effects` is what handlers wrote, in the order in which it was committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.path.unlink(missing_ok=True)
        with closing(self.connect()) as connection:
            connection.execute(
                'CREATE TABLE effect (number INTEGER PRIMARY KEY, topic, partition, "offset", value, outbox_id, revision)'
            )

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=0)
        # Processes die here, no machines do.
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def query(self, text: str) -> list[Any]:
        with closing(self.connect()) as connection, connection:
            return connection.execute(text).fetchall()

    def effects(self) -> list[str]:
        return [value.decode() for (value,) in self.query("SELECT value FROM effect ORDER BY number")]

    def positions(self) -> dict[tuple[str, int], int]:
        rows = self.query("SELECT topic, partition, next_offset FROM outbox_consumer_position")
        return {(topic, partition): offset for topic, partition, offset in rows}

    def letters(self) -> list[tuple[str, str]]:
        rows = self.query(
            'SELECT value, reason FROM outbox_consumer_letter ORDER BY topic, partition, "offset"'
        )
        return [(value.decode(), reason) for value, reason in rows]


class DyingConnection:
    """A connection that is killed at its n-th step, before or after the step is done; then nothing more gets through."""

    def __init__(self, connection: sqlite3.Connection, step: int, *, after: bool) -> None:
        self._connection, self._left, self._after = connection, step, after
        self.dead = False

    def cursor(self) -> "DyingCursor":
        return DyingCursor(self)

    def execute(self, text: str, parameters: Any = ()) -> Any:
        return self.step(lambda: self._connection.execute(text, parameters))

    def commit(self) -> None:
        self.step(self._connection.commit)

    def rollback(self) -> None:
        if not self.dead:
            self.step(self._connection.rollback)

    def step(self, action: Callable[[], Any]) -> Any:
        if self.dead:
            raise Killed
        self._left -= 1
        if self._left < 0:
            self.dead = True
            if self._after:
                action()
            # As the server does with the transaction of a connection that is gone.
            self._connection.close()
            raise Killed
        return action()


DyingConnection.__module__ = "sqlite3"


class DyingCursor:
    """Of a connection that dies."""

    def __init__(self, connection: DyingConnection) -> None:
        self._connection = connection
        self._rows: Any = None

    def execute(self, text: str, parameters: Any = ()) -> None:
        self._rows = self._connection.execute(text, parameters)

    def fetchall(self) -> list[Any]:
        rows: list[Any] = self._rows.fetchall()
        return rows


def member(
    broker: Broker,
    connection: Any,
    *,
    topics: Iterable[str] = ("orders",),
    start: Start = "earliest",
    attempts: int = 3,
    remember: timedelta | None = None,
    stop: Callable[[Member], bool] = lambda consumer: consumer.empty_polls > 0,
) -> Iterator[Output]:
    """A member of the group. It ends when nothing comes, or as `stop` says."""
    store = Store(connection, "billing")
    partitions = Partitions(store, OPTIONS, list(topics), start, consumer=broker.consumer, admin=broker.admin)
    consumer = broker.members[-1]
    if len(broker.members) == 1 or all(other.closed for other in broker.members[:-1]):
        consumer.wanted = {(t, n) for t in topics for n in range(len(broker.topics[t].logs))}
    return Loop(store, partitions, attempts, remember, lambda: stop(consumer), pause=lambda _: None).run()


def apply(connection: Any, output: Output) -> None:
    """A handler."""
    connection.execute(
        'INSERT INTO effect (topic, partition, "offset", value, outbox_id, revision) VALUES (?, ?, ?, ?, ?, ?)',
        (
            output.topic,
            output.partition,
            output.offset,
            output.value,
            None if output.outbox_id is None else str(output.outbox_id),
            output.revision,
        ),
    )


def consume_all(broker: Broker, database: Database, **given: Any) -> list[Output]:
    """Consume what is there, with one member; return what was handed out."""
    seen = []
    with closing(database.connect()) as connection:
        for output in member(broker, connection, **given):
            apply(connection, output)
            seen.append(output)
    return seen
