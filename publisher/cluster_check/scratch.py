"""A topic and a transactional id for one check. They are named like the publisher's own, so that its rights in Kafka cover them."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic

from publisher.kafka.clients import batch_bytes, committed_reader, reading
from publisher.kafka.fencing import fencing_producer
from publisher.kafka.topics import Topics
from publisher.protocol.stop_reasons import StoppedError
from service.errors import RefusedError
from service.kafka.client import admin_client, failure_class, failure_of
from service.kafka.topics import partition_offsets
from service.settings import Settings

_PARTITION = 0
_FLUSH_SLICE_S = 0.2
# The timeout of the check's transactions: short, so that a transaction that a killed check leaves open ends soon.
_TRANSACTION_TIMEOUT_MS = 10_000


class Scratch:
    """The scratch topic and its clients. Not thread-safe. Call `remove` even after an exception."""

    def __init__(self, settings: Settings, give_up: Callable[[], bool]) -> None:
        """Send no request yet. `give_up`: called while waiting; true ends the wait. Raises SettingsError, KafkaException."""
        name = uuid.uuid4().hex
        self.settings = settings
        self.topic = f"{settings.publisher.progress_topic}-check-{name}"
        self.admin = admin_client(settings.kafka)
        self.topics = Topics(
            self.admin, timeout_s=settings.kafka.request_timeout_s, create=False, give_up=give_up
        )
        self.give_up = give_up
        self.timeout_s = settings.kafka.request_timeout_s
        self.settings_refused: str | None = None
        """Why Kafka refused the settings of the publisher's progress topic for this topic, None if it did not."""
        self.committed: list[bytes] = []
        """The keys of the committed records, in order."""
        self.sent_ms = 0
        """The timestamp of the first record, in ms; 0 before it is committed."""
        self._is_made = False
        """Whether Kafka was asked to create the topic, whatever it answered."""
        self._transactional_id = f"{settings.publisher.transactional_id_prefix}-check-{name}"

    def create(self) -> str:
        """Create the topic as the publisher creates its progress topic; return the cluster's id. Raises UnavailableError, RefusedError."""
        try:
            cluster_id = self.topics.cluster_id()
            self._is_made = True
            try:
                self.topics.ensure_progress(
                    self.topic, 1, self.settings.publisher.progress_replication, create=True
                )
            except StoppedError as error:
                self.settings_refused = str(error)
                self._create_plain()
        except KafkaException as error:
            told = error.args[0]
            if failure_class(told) is RefusedError:
                raise RefusedError(
                    f"the scratch topic {self.topic} cannot be made: {told.str()} (docs/ecosystem.md#rights-in-kafka)"
                ) from error
            raise failure_of(self.settings.kafka, error) from error
        return cluster_id

    def remove(self) -> str | None:
        """Delete the topic, also after `give_up`; return why it may still exist, None if it does not."""
        if not self._is_made:
            return None
        try:
            self.admin.answers(
                lambda client: client.delete_topics(
                    [self.topic], operation_timeout=self.timeout_s, request_timeout=self.timeout_s
                )
            )[self.topic].result()
        except KafkaException as error:
            told = error.args[0]
            return None if told.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else str(told.str())
        return None

    def producer(self, transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS) -> Producer:
        """Return an initialised producer. It fences the earlier ones. Raises StoppedError, KafkaException."""
        return fencing_producer(
            self.settings.kafka,
            self.topics,
            self._transactional_id,
            transaction_timeout_ms,
            batch_bytes(self.settings.kafka),
            self.give_up,
        )

    def produce(self, producer: Producer, key: bytes, value: bytes | None = b"", **record: Any) -> int:
        """Send a record in the open transaction; return the offset in its delivery report, -1 if there is none. Raises KafkaException."""
        reports: list[tuple[KafkaError | None, Message]] = []

        def report(error: KafkaError | None, message: Message) -> None:
            reports.append((error, message))

        producer.produce(self.topic, value, key, _PARTITION, on_delivery=report, **record)
        deadline = time.monotonic() + self.timeout_s
        while not reports:
            producer.flush(_FLUSH_SLICE_S)
            if not reports and (self.give_up() or time.monotonic() > deadline):
                raise KafkaException(
                    KafkaError(KafkaError._MSG_TIMED_OUT, "no report of a record's delivery")
                )
        error, message = reports[0]
        if error is not None:
            raise KafkaException(error)
        offset = message.offset()
        return -1 if offset is None else offset

    def commit(self, producer: Producer, *keys: bytes) -> None:
        """Commit the open transaction, whose records have these keys. Raises KafkaException."""
        producer.commit_transaction(self.timeout_s)
        self.committed += keys

    def end(self, *, committed: bool) -> int:
        """Return the end of the partition; `committed`: up to the first open transaction. Raises KafkaException."""
        partition = self.topic, _PARTITION
        found = partition_offsets(
            self.admin, [partition], "latest", self.timeout_s, self.give_up, committed=committed
        )
        return found[partition]

    def read(self) -> list[Any]:
        """Return all records of the partition that a read_committed consumer receives. Raises KafkaException."""
        kafka = self.settings.kafka
        with reading(kafka, self.topic), committed_reader(kafka, self.give_up) as reader:
            blocks = reader.read({(self.topic, _PARTITION): (0, self.end(committed=True))})
            return [message for block in blocks for message in block]

    def _create_plain(self) -> None:
        """Create the topic with the broker's default settings. Raises KafkaException."""
        plain = NewTopic(self.topic, num_partitions=1)
        made = self.admin.answers(
            lambda client: client.create_topics(
                [plain], operation_timeout=self.timeout_s, request_timeout=self.timeout_s
            ),
            self.give_up,
        )
        made[self.topic].result()
