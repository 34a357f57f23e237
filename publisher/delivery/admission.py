"""Decides which rows of a chunk are sent: describes topics before their first produce, and puts aside the rows that Kafka would refuse."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from contract.output_topics import OutputTopics
from publisher.kafka import clients
from publisher.kafka.open_transactions import OpenTransactions
from publisher.kafka.topics import OutputTopic, Topics
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, RowKey
from publisher.protocol.refusals import Refusal, TopicLimits, refusal
from publisher.protocol.stop_reasons import StartOverError, TopicMissingError
from service.settings import KafkaSettings


class Admission(ABC):
    """One lane's, or one replay's: they differ in where topic ids are kept and in how a refused row is handled."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: Topics,
        outgoing: Outgoing,
        open_transactions: OpenTransactions,
        allowed: OutputTopics,
    ) -> None:
        """`allowed`: the topics that records may go to, whatever a row names."""
        self._topics = topics
        self._allowed = allowed
        self._outgoing = outgoing
        self._open_transactions = open_transactions
        self._client_max_bytes = clients.client_max_bytes(kafka)
        self._compressed = clients.compresses(kafka)
        self._began_at = 0.0
        self._aside: set[RowKey] = set()
        self._configured_batch_bytes = clients.batch_bytes(kafka)
        self._topic_max_bytes: dict[str, int] = {}
        self._batch_bytes_in_use = self.batch_bytes

    @property
    def batch_bytes(self) -> int:
        """The producer's `batch.size`: the configured one, or the least `max.message.bytes` that a topic met so far has by now."""
        return min([self._configured_batch_bytes, *self._topic_max_bytes.values()])

    def begin(self, aside: Iterable[RowKey]) -> None:
        """Start over after fencing: the topics may have changed, too. `aside`: rows that are not sent."""
        self._began_at = time.monotonic()
        self._aside = set(aside)
        self._open_transactions.begin()
        self._batch_bytes_in_use = self.batch_bytes

    def admit(self, rows: list[Row]) -> list[Row]:
        """Return the rows to send; put aside those that Kafka would refuse for themselves, before the cursor passes them.

        Raises StoppedError for a topic that is missing, was replaced or has an open transaction, StartOverError where the producer's
        batches do not suit a topic, KafkaException, and what `put_aside` raises.
        """
        if rows and self._aside:
            # Rows that the cursor has passed do not come again.
            first = rows[0].row_key
            self._aside = {key for key in self._aside if key >= first}
        rows, names, limits = self._with_limits(self._with_allowed_topics(self._kept(rows)))
        rows = self._without_progress_topics(rows, limits)
        refused = [row for row in rows if self._refusal(row, limits) is not None]
        if not refused:
            return rows
        # The limits may be a minute old: ask again before a row is put aside.
        limits = self._limits(names, newer_than=time.monotonic())
        for row in refused:
            found = self._refusal(row, limits)
            if found is not None:
                self.put_aside(row.row_key, found)
        return self._kept(rows)

    def _with_limits(self, rows: list[Row]) -> tuple[list[Row], set[str], dict[str, TopicLimits]]:
        """Return the rows whose topics exist, those topics, and what each takes."""
        while True:
            names = self._outgoing.destinations(rows)
            try:
                return rows, names, self._limits(names, newer_than=self._began_at)
            except TopicMissingError as error:
                missing = self._of_topic(rows, error.topic)
                found = self._without_topic(error, len(missing))
                for row in missing:
                    self.put_aside(row.row_key, found)
                rows = self._kept(rows)

    def _with_allowed_topics(self, rows: list[Row]) -> list[Row]:
        """Return the rows all of whose topics are allowed; put the others aside."""
        why = {topic: self._allowed.refusal(topic) for topic in self._outgoing.destinations(rows)}
        return self._without_refused(rows, why)

    def _without_progress_topics(self, rows: list[Row], limits: Mapping[str, TopicLimits]) -> list[Row]:
        """Return the rows without those for what may be another outbox's progress topic; put these aside."""
        compacted = [topic for topic, limit in limits.items() if limit.is_compacted]
        return self._without_refused(
            rows, {topic: self._allowed.refusal_where_compacted(topic) for topic in compacted}
        )

    def _without_refused(self, rows: list[Row], refusals: Mapping[str, str | None]) -> list[Row]:
        """Return the rows without those for topics that are refused; put these aside, each once."""
        refused = {topic: why for topic, why in refusals.items() if why is not None}
        if not refused:
            return rows
        for row in rows:
            topic = min(refused.keys() & self._outgoing.destinations([row]), default=None)
            if topic is not None:
                self.put_aside(row.row_key, Refusal("invalid", refused[topic]))
        return self._kept(rows)

    def _of_topic(self, rows: list[Row], topic: str) -> list[Row]:
        return [row for row in rows if topic in self._outgoing.destinations([row])]

    def put_aside(self, key: RowKey, found: Refusal) -> None:
        """Leave a row out from now on."""
        self._put_aside(key, found)
        self._aside.add(key)

    def check_offsets(self, offsets: dict[str, dict[str, list[int]]]) -> None:
        """Notice that a topic was deleted and created again: its offsets begin at 0 again. `offsets`: of a committed transaction."""
        if begun_anew := self._open_transactions.begun_anew(offsets):
            self._topics.forget(begun_anew)
            self._check_ids(self._topics.describe(begun_anew))

    @abstractmethod
    def _put_aside(self, key: RowKey, found: Refusal) -> None:
        """Record that a row is left out, before any transaction passes it; or raise what stops the delivery."""

    def _without_topic(self, error: TopicMissingError, rows: int) -> Refusal:
        """Return why the rows for a missing topic, so many in this chunk, are put aside; raise where they are not."""
        raise error

    @abstractmethod
    def _check_ids(self, described: Mapping[str, OutputTopic]) -> None:
        """Raise StoppedError unless each topic has the id that it had when it was first written; remember the ids of new ones."""

    def _kept(self, rows: list[Row]) -> list[Row]:
        if not self._aside:
            return rows
        return [row for row in rows if row.row_key not in self._aside]

    def _refusal(self, row: Row, limits: dict[str, TopicLimits]) -> Refusal | None:
        return refusal(row, limits, self._client_max_bytes, self._outgoing)

    def _limits(self, names: set[str], *, newer_than: float) -> dict[str, TopicLimits]:
        described = self._topics.describe(names, newer_than=newer_than)
        if unmet := self._open_transactions.unmet(described):
            # Their ends are asked for first: a topic that is made again later has an offset below them.
            self._open_transactions.meet({name: described[name] for name in unmet})
            described |= self._topics.describe(unmet, newer_than=time.monotonic())
        self._check_ids(described)
        self._topic_max_bytes |= {name: topic.max_message_bytes for name, topic in described.items()}
        if self.batch_bytes != self._batch_bytes_in_use:
            raise StartOverError
        self._open_transactions.wait(described)
        return {
            name: TopicLimits(
                topic.partitions, None if self._compressed else topic.max_message_bytes, topic.is_compacted
            )
            for name, topic in described.items()
        }
