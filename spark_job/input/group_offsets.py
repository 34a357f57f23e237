"""The job's progress for lag tools: offsets of a consumer group. Recovery never reads them.

The administrative client commits them, because a consumer could hang: if it has requested a commit and can no longer reach the group's
coordinator, its `close` never returns (librdkafka 2.16).
"""

import threading
from collections.abc import Sequence

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from service.kafka.client import KafkaAdmin
from service.lifecycle.threads import supervised

log = structlog.get_logger()

_GOODBYE_S = 2.0


class GroupOffsets:
    """A thread commits one set of offsets at a time. Of the sets that were given meanwhile, it commits only the newest."""

    def __init__(self, admin: KafkaAdmin, group: str, request_timeout_s: float) -> None:
        """`group`: empty to show nothing."""
        self._admin = admin
        self._group = group
        self._timeout_s = request_timeout_s
        self._changed = threading.Condition()
        # Set by the caller, taken by the thread, guarded by the condition.
        self._due: Sequence[TopicPartition] = ()
        self._asks = False
        self._closing = threading.Event()
        self._said = ""
        self._thread = supervised(self._run, "group-offsets", self._closing) if group else None
        if self._thread is not None:
            self._thread.start()

    def show(self, offsets: Sequence[TopicPartition]) -> None:
        """Commit these offsets in the group, soon. A failure is only logged."""
        if self._thread is not None:
            with self._changed:
                self._due = offsets
                self._changed.notify_all()

    def close(self) -> None:
        """Wait briefly until the offsets given last are committed, then end the thread."""
        if self._thread is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._due and not self._asks, _GOODBYE_S)
            self._closing.set()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._asks = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._due or self._closing.is_set())
                if self._closing.is_set():
                    return
                offsets, self._due = self._due, ()
                self._asks = True
            self._ask(offsets)

    def _ask(self, offsets: Sequence[TopicPartition]) -> None:
        change = ConsumerGroupTopicPartitions(self._group, list(offsets))
        try:
            answers = self._admin.coordinator_answers(
                self._timeout_s,
                lambda client, wait_s: client.alter_consumer_group_offsets([change], request_timeout=wait_s),
                self._closing.is_set,
            )
            partitions = answers[self._group].result().topic_partitions or []
        except KafkaException as error:
            said = error.args[0].str()
        else:
            said = next((each.error.str() for each in partitions if each.error is not None), "")
        if said and said != self._said and not self._closing.is_set():
            log.warning("group_offsets_not_committed", group=self._group, error=said)
        self._said = said
