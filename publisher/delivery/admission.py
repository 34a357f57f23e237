"""Decides which rows of a chunk are sent: describes topics before their first produce, and excludes the rows that Kafka would refuse.

protocol/refusals.py tells which rows Kafka would refuse for their size or content.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from contract.output_topics import OutputTopics
from publisher.delivery.context import Context
from publisher.delivery.excluded_rows import ExcludedRows
from publisher.kafka import clients
from publisher.kafka.open_transactions import OpenTransactions
from publisher.kafka.topics import OutputTopic
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, RowKey
from publisher.protocol.refusals import Refusal, TopicLimits, refusal
from publisher.protocol.stop_reasons import StartOverError, TopicMissingError


class ExclusionPolicy(Protocol):
    """Decides what happens to rows that cannot be sent: a lane parks them, a replay skips them or stops."""

    def exclude(self, row: RowKey, refusal: Refusal, /) -> None:
        """Record that a row is excluded, before any transaction passes it; or raise the error that stops the delivery."""

    def topic_missing(self, error: TopicMissingError, rows: int, /) -> Refusal:
        """Return why the rows for a missing topic are excluded; raise if they are not. `rows`: how many this chunk has."""


class TopicIds(Protocol):
    """The ids that the output topics had when they were first written."""

    def check(self, ids: Mapping[str, str], /) -> None:
        """Raise StoppedError unless each topic still has its recorded id; remember the ids of new topics."""


class Admission:
    """The admission of the rows of one lane or replay. Not thread-safe."""

    def __init__(
        self, context: Context, outgoing: Outgoing, allowed: OutputTopics, policy: ExclusionPolicy
    ) -> None:
        """`allowed`: the topics that records may go to, whatever topics a row names."""
        kafka = context.settings.kafka
        self._topics = context.topics
        self._outgoing = outgoing
        self._allowed = allowed
        self._policy = policy
        self._excluded: ExcludedRows
        self._topic_ids: TopicIds
        self._open_transactions = OpenTransactions(context.topics, context.give_up)
        self._client_max_bytes = clients.client_max_bytes(kafka)
        self._compressed = clients.compresses(kafka)
        self._began_at = 0.0
        self._configured_batch_bytes = clients.batch_bytes(kafka)
        self._topic_max_bytes: dict[str, int] = {}
        self._batch_bytes_in_use = self.batch_bytes

    @property
    def batch_bytes(self) -> int:
        """The producer's `batch.size`: the least of the configured size and each `max.message.bytes` seen so far."""
        return min([self._configured_batch_bytes, *self._topic_max_bytes.values()])

    def begin(self, excluded: ExcludedRows, topic_ids: TopicIds) -> None:
        """Start over after fencing. The topics may have changed, too."""
        self._excluded = excluded
        self._topic_ids = topic_ids
        self._began_at = time.monotonic()
        self._open_transactions.begin()
        self._batch_bytes_in_use = self.batch_bytes

    def admit(self, rows: list[Row]) -> list[Row]:
        """Return the rows to send. The others, whose own content Kafka would refuse, are excluded before the cursor passes them.

        Raises StoppedError for a topic that is missing, was replaced or has an open transaction, StartOverError if the producer's
        batches do not suit a topic, KafkaException, and what `exclude` raises.
        """
        self._excluded.move_to(rows)
        rows, described = self._with_topics(self._with_allowed_topics(self._excluded.without(rows)))
        rows = self._without_progress_topics(rows, described)
        # Only the ids of topics that rows go to are recorded: `publisher erase --tombstones` writes to them, too.
        names = self._outgoing.destinations(rows)
        limits = self._limits({name: described[name] for name in names})
        refused = [row for row in rows if self._refusal(row, limits) is not None]
        if not refused:
            return rows
        # The known limits may be a minute old, so they are read again before a row is excluded.
        limits = self._limits(self._described(names, newer_than=time.monotonic()))
        for row in refused:
            found = self._refusal(row, limits)
            if found is not None:
                self.exclude(row.row_key, found)
        return self._excluded.without(rows)

    def exclude(self, row: RowKey, refusal: Refusal) -> None:
        """Exclude a row from now on. Raises what the policy raises."""
        self._policy.exclude(row, refusal)
        self._excluded.add(row)

    def check_offsets(self, offsets: dict[str, dict[str, list[int]]]) -> None:
        """Detect that a topic was deleted and created again, because its offsets begin at 0 again. `offsets`: of a committed
        transaction."""
        if begun_anew := self._open_transactions.begun_anew(offsets):
            self._topics.forget(begun_anew)
            self._check_ids(self._topics.describe(begun_anew))

    def _with_topics(self, rows: list[Row]) -> tuple[list[Row], dict[str, OutputTopic]]:
        """Return the rows whose topics exist, and these topics."""
        while True:
            try:
                return rows, self._described(self._outgoing.destinations(rows), newer_than=self._began_at)
            except TopicMissingError as error:
                missing = self._of_topic(rows, error.topic)
                found = self._policy.topic_missing(error, len(missing))
                for row in missing:
                    self.exclude(row.row_key, found)
                rows = self._excluded.without(rows)

    def _with_allowed_topics(self, rows: list[Row]) -> list[Row]:
        """Exclude the rows with a topic that is not allowed; return the others."""
        why = {topic: self._allowed.refusal(topic) for topic in self._outgoing.destinations(rows)}
        return self._without_refused(rows, why)

    def _without_progress_topics(self, rows: list[Row], described: Mapping[str, OutputTopic]) -> list[Row]:
        """Exclude the rows for a topic that may be another outbox's progress topic; return the others."""
        compacted = [name for name, topic in described.items() if topic.is_compacted]
        return self._without_refused(
            rows, {topic: self._allowed.refusal_where_compacted(topic) for topic in compacted}
        )

    def _without_refused(self, rows: list[Row], refusals: Mapping[str, str | None]) -> list[Row]:
        """Exclude the rows for refused topics, each row once; return the others."""
        refused = {topic: why for topic, why in refusals.items() if why is not None}
        if not refused:
            return rows
        for row in rows:
            topic = min(refused.keys() & self._outgoing.destinations([row]), default=None)
            if topic is not None:
                self.exclude(row.row_key, Refusal("invalid", refused[topic]))
        return self._excluded.without(rows)

    def _of_topic(self, rows: list[Row], topic: str) -> list[Row]:
        return [row for row in rows if topic in self._outgoing.destinations([row])]

    def _check_ids(self, described: Mapping[str, OutputTopic]) -> None:
        self._topic_ids.check({name: topic.topic_id for name, topic in described.items()})

    def _refusal(self, row: Row, limits: dict[str, TopicLimits]) -> Refusal | None:
        return refusal(row, limits, self._client_max_bytes, self._outgoing)

    def _described(self, names: set[str], *, newer_than: float) -> dict[str, OutputTopic]:
        described = self._topics.describe(names, newer_than=newer_than)
        if unmet := self._open_transactions.unmet(described):
            # The ends are read before the topics are described again: a topic that is deleted and created afterwards has offsets below
            # them.
            self._open_transactions.meet({name: described[name] for name in unmet})
            described |= self._topics.describe(unmet, newer_than=time.monotonic())
        return described

    def _limits(self, described: Mapping[str, OutputTopic]) -> dict[str, TopicLimits]:
        """Return the limits of topics, once their ids are recorded and no earlier transaction is open on them."""
        self._check_ids(described)
        self._topic_max_bytes |= {name: topic.max_message_bytes for name, topic in described.items()}
        if self.batch_bytes != self._batch_bytes_in_use:
            raise StartOverError
        self._open_transactions.wait(described)
        return {name: topic.limits(compressed=self._compressed) for name, topic in described.items()}
