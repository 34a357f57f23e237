"""The job's progress for lag tools: offsets of a consumer group. Recovery never reads them.

The administrative client commits them, because its requests time out. A consumer with an open commit that can no longer reach the group's
coordinator never returns from `close` (librdkafka 2.16): after a certificate change a job hung at the end of its attempt.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from service.kafka.client import KafkaAdmin

log = structlog.get_logger()

_GOODBYE_S = 2.0

Answer = Future[ConsumerGroupTopicPartitions]


class GroupOffsets:
    """Sends one change at a time, then the newest that came meanwhile. Thread-safe: answers come in a thread of Kafka's client."""

    def __init__(self, admin: KafkaAdmin, group: str, request_timeout_s: float) -> None:
        """`group`: empty to show nothing."""
        self._admin = admin
        self._group = group
        self._timeout_s = request_timeout_s
        self._lock = threading.Lock()
        self._due: Sequence[TopicPartition] = ()
        self._idle = threading.Event()
        self._idle.set()
        self._said = ""

    def show(self, offsets: Sequence[TopicPartition]) -> None:
        """Have the group show these offsets, soon. A failure is only logged."""
        if not self._group or not offsets:
            return
        with self._lock:
            self._due = offsets
            begins = self._idle.is_set()
            self._idle.clear()
        if begins:
            self._ask()

    def close(self) -> None:
        """Wait a moment for the request that is under way."""
        self._idle.wait(_GOODBYE_S)

    def _ask(self) -> None:
        with self._lock:
            offsets, self._due = self._due, ()
            if not offsets:
                self._idle.set()
                return
        change = ConsumerGroupTopicPartitions(self._group, list(offsets))
        try:
            (asked,) = self._admin.client.alter_consumer_group_offsets(
                [change], request_timeout=self._timeout_s
            ).values()
        except KafkaException as error:
            self._note(error.args[0])
            self._idle.set()
        else:
            asked.add_done_callback(self._answered)

    def _answered(self, asked: Answer) -> None:
        failure = asked.exception()
        if failure is None:
            refused = [each.error for each in asked.result().topic_partitions or [] if each.error is not None]
            self._note(refused[0] if refused else None)
        elif isinstance(failure, KafkaException):
            self._note(failure.args[0])
        self._ask()

    def _note(self, error: KafkaError | None) -> None:
        self._admin.note(error)
        said = "" if error is None else error.str()
        if said and said != self._said:
            log.warning("group_offsets_not_committed", group=self._group, error=said)
        self._said = said
