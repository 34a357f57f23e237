"""Writes records without a value for the keys of erased outputs, so that compaction removes their records from the topic.

Tombstones are written before the rows are erased, in Kafka transactions. If the command is killed in between, the next run writes them
again, which does not change a compacted topic. A tombstone has no `outbox-id`: consumers would drop it as a duplicate of the output.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaException, Producer

from contract.output_topics import OutputTopics
from publisher.kafka.clients import client_max_bytes, compresses, discard_producer
from publisher.kafka.compaction import compacted_topics
from publisher.kafka.fencing import end_transaction, fencing_producer
from publisher.kafka.topics import Topics
from publisher.outbox.identity import OutboxIdentity
from publisher.protocol.records import ANY_PARTITION, ERASED_HEADER, SENT_NOW, Header, OutputRecord
from publisher.protocol.refusals import record_refusal
from service.errors import SettingsError, UnavailableError
from service.kafka.client import admin_client, no_answer
from service.kafka.rights import needing
from service.settings import KafkaSettings, Settings

_BATCH_BYTES = 1_000_000
_AT_ONCE = 10_000
"""The most tombstones of one Kafka transaction."""


class Tombstone(NamedTuple):
    """A record that deletes a key in a partition of a topic."""

    topic: str
    key: bytes
    partition: int


class OutputPlaces(Protocol):
    """What a row of session_output says of its outputs: an entry for each."""

    @property
    def topics(self) -> Sequence[str]: ...

    @property
    def keys(self) -> Sequence[bytes | None] | None: ...

    @property
    def partitions(self) -> Sequence[int | None] | None: ...


def _tombstones_of(session_key: str, row: OutputPlaces) -> list[Tombstone]:
    """Return a tombstone for each output of a row. `partition`: ANY_PARTITION for an output without one of its own."""
    own, keys, partitions = session_key.encode(), row.keys, row.partitions
    return [
        Tombstone(
            topic,
            own if keys is None or keys[n] is None else keys[n] or b"",
            ANY_PARTITION if partitions is None or (to := partitions[n]) is None else to,
        )
        for n, topic in enumerate(row.topics)
    ]


class TombstoneWriter:
    """Writes tombstones to the compacted topics that it was created for."""

    def __init__(self, settings: Settings, identity: OutboxIdentity, topics: Sequence[str]) -> None:
        """Raise SettingsError for topics that take no tombstones, UnavailableError if Kafka does not answer."""
        self.topics = frozenset(topics)
        self._identity = identity
        self._settings = settings
        self._producer: Producer | None = None
        self._headers: list[Header] = [(ERASED_HEADER, str(identity.outbox_uuid).encode())]
        self._client_max_bytes = client_max_bytes(settings.kafka)
        allowed = OutputTopics(settings.publisher.output_topics, settings.publisher.progress_topic)
        for topic in topics:
            if (refusal := allowed.refusal(topic)) is not None:
                raise SettingsError(f"--tombstones: {refusal}")
            if topic not in identity.output_topic_ids:
                raise SettingsError(f"--tombstones: this outbox has never delivered to topic {topic!r}")
        try:
            self._check_cluster(topics)
        except KafkaException as error:
            raise _unavailable(self._settings.kafka, error) from error
        for topic in topics:
            # Compacted since then: of a compacted topic of this name, lanes park the rows.
            if (refusal := allowed.refusal_where_compacted(topic)) is not None:
                raise SettingsError(f"--tombstones: {refusal}")

    def wanted(self, session_key: str, rows: Iterable[OutputPlaces]) -> list[Tombstone]:
        """Return the tombstones of rows of a session key, of the topics of this writer, without duplicates.

        An output without a partition of its own gets one in every partition: the topic may have had fewer when the record was written.
        Leaves out those that Kafka would refuse: the lane has parked the row of such an output.
        """
        found = [
            each._replace(partition=partition)
            for row in rows
            for each in _tombstones_of(session_key, row)
            if each.topic in self.topics
            for partition in self._partitions(each)
        ]
        return [each for each in dict.fromkeys(found) if not self._is_refused(each)]

    def _partitions(self, each: Tombstone) -> Iterable[int]:
        return (
            range(self._limits[each.topic].partitions)
            if each.partition == ANY_PARTITION
            else [each.partition]
        )

    def _is_refused(self, each: Tombstone) -> bool:
        record = OutputRecord(each.topic, None, each.key, each.partition, SENT_NOW, self._headers)
        return record_refusal(0, record, self._limits[each.topic], self._client_max_bytes) is not None

    def write(self, wanted: Sequence[Tombstone]) -> int:
        """Write the tombstones; return how many. After a failure, some may be written. Raises UnavailableError."""
        if not wanted:
            return 0
        try:
            with needing("Write", "topic", *sorted({each.topic for each in wanted})):
                producer = self._producer or self._open()
                for first in range(0, len(wanted), _AT_ONCE):
                    self._write(producer, wanted[first : first + _AT_ONCE])
        except KafkaException as error:
            self._end()
            raise _unavailable(self._settings.kafka, error) from error
        return len(wanted)

    def _check_cluster(self, topics: Sequence[str]) -> None:
        kafka = self._settings.kafka
        admin = admin_client(kafka)
        self._kafka_topics = Topics(admin, timeout_s=kafka.request_timeout_s, create=False)
        if (found := self._kafka_topics.cluster_id()) != self._identity.cluster_id:
            raise SettingsError(
                f"--tombstones: this outbox delivers to Kafka cluster {self._identity.cluster_id}, but [kafka] bootstrap_servers leads to "
                f"{found}. Correct it (OUTBOX_KAFKA__BOOTSTRAP_SERVERS)"
            )
        described = self._kafka_topics.describe(topics)
        self._limits = {name: topic.limits(compressed=compresses(kafka)) for name, topic in described.items()}
        kept_whole = set(topics) - compacted_topics(admin, topics, kafka.request_timeout_s)
        if kept_whole:
            raise SettingsError(
                f"--tombstones: topic {sorted(kept_whole)[0]!r} is not compacted, so that a tombstone removes nothing there"
            )

    @property
    def _transactional_id(self) -> str:
        prefix = self._identity.transactional_id_prefix or self._settings.publisher.transactional_id_prefix
        return f"{prefix}-{self._identity.outbox_uuid}-erase"

    def _open(self) -> Producer:
        self._producer = fencing_producer(
            self._settings.kafka,
            self._kafka_topics,
            self._transactional_id,
            self._settings.publisher.transaction_timeout_ms,
            _BATCH_BYTES,
            lambda: False,
        )
        return self._producer

    def _end(self) -> None:
        """End the transaction that failed, if a producer was open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            discard_producer(producer)
            timeout_ms = self._settings.publisher.transaction_timeout_ms
            end_transaction(self._settings.kafka, self._kafka_topics, self._transactional_id, timeout_ms)

    def _write(self, producer: Producer, tombstones: Sequence[Tombstone]) -> None:
        producer.begin_transaction()
        for topic, key, partition in tombstones:
            while True:
                try:
                    producer.produce(topic, None, key, partition, headers=self._headers)
                    break
                except BufferError:
                    producer.poll(1.0)
        producer.commit_transaction(self._settings.publisher.transaction_timeout_ms / 1000)


def _unavailable(kafka: KafkaSettings, error: KafkaException) -> UnavailableError:
    return UnavailableError(
        f"Kafka did not take the tombstones: {no_answer(kafka, error.args[0])}. Their rows are not erased; run the command again, which "
        "writes them again"
    )
