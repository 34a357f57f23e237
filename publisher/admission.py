"""Which of a lane's rows go out: topics are described before their first produce, rows that Kafka would refuse are parked."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import structlog

from db.settings import Settings
from db.statements import statement
from publisher import clients, metrics
from publisher.cursor import Cursor
from publisher.identity import bind_topics, check_topics
from publisher.lease import Lease, LeaseLostError
from publisher.open_transactions import OpenTransactions
from publisher.records import ExtraHeaders, Row
from publisher.refusals import Refusal, TopicLimits, refusal
from publisher.shared import StartOverError
from publisher.topics import OutputTopic, Topics

_log = structlog.get_logger()


class Admission:
    """One lane's."""

    def __init__(self, settings: Settings, topics: Topics, give_up: Callable[[], bool]) -> None:
        """`give_up`: asked while waiting, ends the wait."""
        self._topics = topics
        self._open_transactions = OpenTransactions(topics, give_up)
        self._headers = ExtraHeaders.of(settings.publisher)
        self._client_max_bytes = clients.client_max_bytes(settings.kafka)
        self._compressed = clients.compresses(settings.kafka)
        self._parked: set[tuple[int, str]] = set()
        self._bound_topics: dict[str, str] = {}
        self._began_at = 0.0
        self.batch_bytes: int | None = None
        """The least `max.message.bytes` of the topics met so far, where that is below the producer's default batch."""

    def begin(self, connection: psycopg.Connection[Any], lease: Lease, cursor: Cursor) -> None:
        """Start over after fencing: read what is parked beyond the cursor, so that a retry skips the same rows."""
        # Whatever made the lane start over may have changed the topics too.
        self._began_at = time.monotonic()
        self._bound_topics = {}
        self._open_transactions.begin()
        from_batch, from_key = cursor.exclusive_bound()
        self._parked = set(
            connection.execute(
                statement("publisher", "parked_ahead"),
                lease.parameters | {"from_batch": from_batch, "from_key": from_key},
            ).fetchall()
        )

    def admit(self, connection: psycopg.Connection[Any], lease: Lease, rows: list[Row]) -> list[Row]:
        """Return the rows to send; park those that Kafka would refuse for themselves, before the cursor passes them.

        Raises LaneStoppedError for a topic that is missing, was replaced or has an open transaction, StartOverError where the producer's
        batches do not suit a topic, LeaseLostError, KafkaException, psycopg.Error.
        """
        if self._parked:
            rows = self._unparked(rows)
        names = {name for row in rows for name in row.topics}
        limits = self._limits(connection, names, newer_than=self._began_at)
        refused = [row for row in rows if self._refusal(row, limits) is not None]
        if not refused:
            return rows
        # The limits may be a minute old: ask again before a row is put aside.
        limits = self._limits(connection, names, newer_than=time.monotonic())
        for row in refused:
            found = self._refusal(row, limits)
            if found is not None:
                self.park(connection, lease, row.batch_id, row.session_key, found)
        return self._unparked(rows)

    def park(
        self,
        connection: psycopg.Connection[Any],
        lease: Lease,
        batch_id: int,
        session_key: str,
        found: Refusal,
    ) -> None:
        """Put a row aside, committed before any transaction passes it. Raises LeaseLostError."""
        written = connection.execute(
            statement("publisher", "park"),
            lease.parameters
            | {
                "session_key": session_key,
                "batch_id": batch_id,
                "reason": found.reason,
                "detail": found.detail,
            },
        )
        if written.rowcount != 1:
            raise LeaseLostError("the lane was taken over by another publisher")
        self._parked.add((batch_id, session_key))
        metrics.parked(found.reason)
        _log.warning(
            "parked",
            lane=lease.parameters["lane"],
            batch_id=batch_id,
            reason=found.reason,
            detail=found.detail,
        )

    def _unparked(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if (row.batch_id, row.session_key) not in self._parked]

    def _refusal(self, row: Row, limits: dict[str, TopicLimits]) -> Refusal | None:
        return refusal(row, limits, self._client_max_bytes, self._headers)

    def _limits(
        self, connection: psycopg.Connection[Any], names: Iterable[str], *, newer_than: float
    ) -> dict[str, TopicLimits]:
        described = self._topics.describe(names, newer_than=newer_than)
        ids = {name: topic.topic_id for name, topic in described.items()}
        if any(name not in self._bound_topics for name in ids):
            self._bound_topics = bind_topics(connection, ids)
        check_topics(self._bound_topics, ids)
        self._fit_batches(described)
        self._open_transactions.wait(described)
        return {
            name: TopicLimits(topic.partitions, None if self._compressed else topic.max_message_bytes)
            for name, topic in described.items()
        }

    def _fit_batches(self, described: dict[str, OutputTopic]) -> None:
        least = min((topic.max_message_bytes for topic in described.values()), default=clients.BATCH_BYTES)
        if least < (self.batch_bytes or clients.BATCH_BYTES):
            self.batch_bytes = least
            raise StartOverError
