"""Decides which rows of a lane are sent: parks those that Kafka would refuse, and records the ids of output topics in Postgres."""

from collections.abc import Mapping
from typing import Any

import psycopg
import structlog

from contract.cursor import Cursor
from contract.output_topics import OutputTopics
from db.statements import queries
from publisher.delivery.admission import Admission
from publisher.delivery.context import Context
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.kafka.open_transactions import OpenTransactions
from publisher.kafka.topics import OutputTopic
from publisher.monitoring import metrics
from publisher.outbox.identity import bind_topics, check_topics
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.outbox.parked import park
from publisher.outbox.parked_topics import standing
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, RowKey
from publisher.protocol.refusals import Refusal
from publisher.protocol.remediation import park_command
from publisher.protocol.stop_reasons import TopicMissingError

_PARKED = queries("publisher", "parked")

_PARKED_AT_ONCE = 10_000
"""Parked rows beyond the cursor that are remembered at a time; there may be millions."""

_log = structlog.get_logger()


class LaneAdmission(Admission):
    """One lane's."""

    def __init__(self, context: Context, connection: OutboxConnection, outgoing: Outgoing) -> None:
        publisher = context.settings.publisher
        open_transactions = OpenTransactions(context.topics, context.give_up)
        allowed = OutputTopics(publisher.output_topics, publisher.progress_topic)
        super().__init__(context.settings.kafka, context.topics, outgoing, open_transactions, allowed)
        self._connection = connection
        self._lease: Lease | None = None
        self._parked_after: RowKey | None = None
        self._bound_topics: dict[str, str] = {}

    def begin_tenure(self, connection: psycopg.Connection[Any], lease: Lease, cursor: Cursor) -> None:
        """Start over: read the rows that are parked beyond the cursor, so that a retry skips the same rows."""
        self._lease = lease
        self._bound_topics = {}
        self._parked_after = cursor.exclusive_bound()
        self.begin(self._read_parked(connection))

    def admit(self, rows: list[Row]) -> list[Row]:
        """As `Admission.admit`, after reading the parked rows up to the last of `rows`."""
        while rows and self._parked_after is not None:
            if rows[-1].row_key <= self._parked_after:
                break
            self._aside.update(self._read_parked(self._connection.get()))
        return super().admit(rows)

    def _read_parked(self, connection: psycopg.Connection[Any]) -> list[RowKey]:
        """Read the next parked rows. `_parked_after`: the last that was read; None: all were."""
        assert self._lease is not None
        assert self._parked_after is not None
        from_batch, from_key = self._parked_after
        rows = connection.execute(
            _PARKED["ahead"],
            self._lease.parameters
            | {"from_batch": from_batch, "from_key": from_key, "rows": _PARKED_AT_ONCE},
        ).fetchall()
        found = [RowKey(*row) for row in rows]
        self._parked_after = found[-1] if len(found) == _PARKED_AT_ONCE else None
        return found

    def _put_aside(self, key: RowKey, found: Refusal) -> None:
        """Park a row. Raises LeaseLostError."""
        if self._lease is None:
            raise LeaseLostError("the lane is not held")
        park(self._connection.get(), self._lease, key, found)
        metrics.parked(found.reason)
        line = {"lane": self._lease.parameters["lane"], "batch_id": key.batch_id, "reason": found.reason}
        if found.reason == "topic_missing":
            # There may be hundreds a second, and one line for the whole chunk has been written.
            _log.debug("parked", **line, detail=found.detail)
        else:
            _log.warning("parked", **line, detail=found.detail)

    def _without_topic(self, error: TopicMissingError, rows: int) -> Refusal:
        if error.topic not in standing(self._connection.get()):
            raise TopicMissingError(
                error.topic,
                f"{_text(error)}. Or have the rows that go to it parked, so that the lane continues without them: "
                f"`{park_command(error.topic)}`",
            ) from error
        # A broker that has just started may not know its topics yet, so the answer is checked.
        if not self._topics.is_missing(error.topic):
            raise error
        if self._lease is not None:
            _log.warning(
                "parked_for_topic", lane=self._lease.parameters["lane"], topic=error.topic, rows=rows
            )
        return Refusal(
            "topic_missing",
            f"output topic {error.topic!r} does not exist, and its rows are parked by decision",
        )

    def _check_ids(self, described: Mapping[str, OutputTopic]) -> None:
        ids = {name: topic.topic_id for name, topic in described.items()}
        if any(name not in self._bound_topics for name in ids):
            self._bound_topics = bind_topics(self._connection.get(), ids)
        check_topics(self._bound_topics, ids)


def _text(error: TopicMissingError) -> str:
    return str(error).removeprefix(f"{error.reason}: ")
