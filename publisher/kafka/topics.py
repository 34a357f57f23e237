"""The topics a publisher writes: the compacted progress topic, and the output topics with their ids and limits."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import NamedTuple

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them, without saying so to mypy
    AdminClient,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from publisher.kafka.clients import Cluster, answer, cluster
from publisher.kafka.single_flight import SingleFlight
from publisher.protocol import remediation
from publisher.protocol.stop_reasons import StoppedError, StopReason, TopicMissingError
from service.kafka_client import UNAUTHORISED
from service.kafka_rights import needing
from service.topic_ids import topic_id_text

_log = structlog.get_logger()

# Small segments, because a lane reads its progress back at every start and compaction leaves the active one alone.
_PROGRESS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}

# Asked about where only the cluster is: it need not exist, and is not made. All topics would be too many for a large cluster.
_ANY_TOPIC = "outbox-progress"
# Of the progress topic, where [publisher] progress_replication does not say and the cluster has as many brokers.
_REPLICATION = 3
_MISSING_POLL_S = 0.2


# What the controller answers for a topic that it does not have, and would not create: a name that differs from another one's only by
# `.` and `_`, a policy, this number of replicas. An existing topic is told first.
_REFUSES_NEW_TOPICS = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
)


class OutputTopic(NamedTuple):
    """A topic as Kafka describes it: its id changes when it is deleted and created again."""

    topic_id: str
    partitions: int
    max_message_bytes: int


def _check_replicas(name: str, topic: TopicDescription, least: int) -> None:
    """Raise StoppedError for a topic that can take nothing, however healthy its brokers are: a produce would only time out."""
    replicas = min(len(partition.replicas) for partition in topic.partitions)
    if replicas < least:
        raise StoppedError(
            StopReason.OUTPUT_TOPIC_UNWRITABLE,
            f"output topic {name!r} has min.insync.replicas={least}, but only {replicas} replica{'s' * (replicas != 1)}, so that Kafka "
            "takes no record. Lower the one or raise the other; the lane then continues by itself",
            retry=True,
        )


class Topics:
    """What Kafka says of topics, asked for once and again when it is older than `max_age_s`. Shared by all lanes."""

    def __init__(
        self,
        admin: AdminClient,
        *,
        timeout_s: float,
        create: bool,
        give_up: Callable[[], bool] = lambda: False,
        max_age_s: float = 60.0,
        missing_s: float = 5.0,
    ) -> None:
        """`create`: missing output topics are created. `give_up`: asked while waiting, ends the wait.

        `missing_s`: how long a missing progress topic is asked for again before it is believed to be gone.
        """
        self._admin = admin
        self._timeout_s = timeout_s
        self._create = create
        self._give_up = give_up
        self._max_age_s = max_age_s
        self._missing_s = missing_s
        # Held for a moment only, never while Kafka is asked: lanes would wait for a Kafka that is away one after the other.
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, OutputTopic]] = {}
        self._forgotten: dict[str, float] = {}
        self._flights = SingleFlight(give_up)
        self._warned = False

    def cluster_id(self) -> str:
        """Return the id of the cluster that answers now. Raises KafkaException when Kafka does not answer."""
        return self._cluster().cluster_id

    def brokers(self) -> int:
        """Return how many brokers the cluster has now. Raises KafkaException."""
        return self._cluster().brokers

    def _cluster(self) -> Cluster:
        return cluster(self._admin, _ANY_TOPIC, self._timeout_s, self._give_up)

    def describe(self, names: Iterable[str], *, newer_than: float = 0.0) -> dict[str, OutputTopic]:
        """Return every named output topic, asked for after `newer_than` (time.monotonic).

        Raises StoppedError, to be retried, for a topic that is missing or may not be described; KafkaException.
        """
        wanted = set(names)
        least = max(newer_than, time.monotonic() - self._max_age_s)
        with self._lock:
            least = max(least, *(self._forgotten.get(name, 0.0) for name in wanted), 0.0)
            found = {
                name: self._known[name][1]
                for name in wanted
                if name in self._known and self._known[name][0] >= least
            }
        stale = sorted(wanted - set(found))
        if stale:
            found |= self._flights.ask(tuple(stale), lambda: self._ask(stale), newer_than=least)
        return found

    def is_missing(self, topic: str) -> bool:
        """Return whether a topic does not exist: by the controller's word, which is final, where it may be asked to create topics.

        Without that right a broker's metadata decides. Raises KafkaException.
        """
        return not self.partitions(topic) and not self._controller_knows(topic)

    def forget(self, names: Iterable[str]) -> None:
        """Ask for these topics again when they are described the next time."""
        now = time.monotonic()
        with self._lock:
            self._forgotten |= dict.fromkeys(names, now)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the present ids of those of the topics that exist. Raises KafkaException."""
        asked = self._describe(list(names)) if names else {}
        found = {}
        for name, described in asked.items():
            try:
                found[name] = topic_id_text(self._description(name, described).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return found

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, 0 where it does not exist. Raises KafkaException."""
        try:
            return len(self._description(topic).partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return 0

    def ensure_progress(
        self, topic: str, partitions: int, replication: int, *, create: bool, lost: str = remediation.LOST
    ) -> None:
        """Make sure that the progress topic exists, is compacted and has so many partitions. `lost`: what to do where it is gone.

        Raises StoppedError when it is not compacted, or missing for some seconds while `create` is false.
        """
        deadline = time.monotonic() + self._missing_s
        while True:
            try:
                self._flights.ask(
                    (topic, partitions, replication, create),
                    lambda: self._ensure_progress(topic, partitions, replication, create, lost),
                )
                return
            except StoppedError as error:
                # Asked for a while where the controller may not be: a broker that just started may not know its topics yet.
                if error.reason is not StopReason.KAFKA_LOST or time.monotonic() > deadline:
                    raise
                if self._give_up():
                    raise KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, "stopped while waiting for the progress topic")
                    ) from error
                time.sleep(_MISSING_POLL_S)

    def _ensure_progress(
        self, topic: str, partitions: int, replication: int, create: bool, lost: str
    ) -> None:
        try:
            found = self._description(topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            if not create and self._controller_knows(topic):
                raise  # a broker whose metadata lags; it will know, too
            if not create:
                raise StoppedError(
                    StopReason.KAFKA_LOST,
                    f"the progress topic {topic} does not exist, though this outbox has delivered before: the cluster "
                    f"was lost, rebuilt or is another one, or the topic was deleted. {lost}",
                ) from error
            if replication < 0:
                replication = min(_REPLICATION, self._cluster().brokers)
            new = NewTopic(
                topic, num_partitions=partitions, replication_factor=replication, config=_PROGRESS_CONFIG
            )
            self._create_topic(new)
            return
        if (
            not self._warned
            and min(len(each.replicas) for each in found.partitions) == 1
            and self._cluster().brokers > 1
        ):
            self._warned = True
            _log.warning("progress_topic_unreplicated", topic=topic)
        policy = str(self._config(topic)["cleanup.policy"].value)
        if policy != "compact":
            raise StoppedError(
                StopReason.PROGRESS_NOT_COMPACTED,
                f"topic {topic} has cleanup.policy={policy}: Kafka would delete the lanes' positions after a while, and "
                "the next start would deliver everything again. Set cleanup.policy=compact on it, or name another "
                "[publisher] progress_topic before the first start",
                retry=True,
            )
        if len(found.partitions) < partitions:
            grown = self._admin.create_partitions(
                [NewPartitions(topic, partitions)], request_timeout=self._timeout_s
            )
            with needing("Alter", "topic", topic):
                answer(grown[topic], self._give_up)

    def _controller_knows(self, topic: str) -> bool:
        """Ask the controller, whose word is final, whether a topic exists: with a creation that it is only to check."""
        checked = self._admin.create_topics(
            [NewTopic(topic, num_partitions=1, replication_factor=1)],
            validate_only=True,
            request_timeout=self._timeout_s,
        )
        try:
            answer(checked[topic], self._give_up)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return True
            if error.args[0].code() not in (*UNAUTHORISED, *_REFUSES_NEW_TOPICS):
                raise
        return False

    def ends(self, topic: str, partitions: Iterable[int], *, committed: bool = False) -> dict[int, int]:
        """Return the ends of partitions as a read_uncommitted reader sees them; `committed`: up to the first open transaction.

        Raises KafkaException.
        """
        asked = self._admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._timeout_s,
        )
        with needing("Describe", "topic", topic):
            return {
                place.partition: int(answer(future, self._give_up).offset) for place, future in asked.items()
            }

    def high_watermark(self, topic: str, partition: int, *, committed: bool = False) -> int:
        """Return the end of one partition, as `ends` does."""
        return self.ends(topic, [partition], committed=committed)[partition]

    def _ask(self, names: list[str]) -> dict[str, OutputTopic]:
        asked_at = time.monotonic()
        found = {}
        described = self._describe(names)
        for name in names:
            try:
                topic = self._description(name, described[name])
            except KafkaException as error:
                topic = self._mend(name, error)
            config = self._config(name)
            _check_replicas(name, topic, int(str(config["min.insync.replicas"].value)))
            max_bytes = int(str(config["max.message.bytes"].value))
            found[name] = OutputTopic(topic_id_text(topic.topic_id), len(topic.partitions), max_bytes)
            with self._lock:
                # Another lane may have asked later and be answered sooner.
                if name not in self._known or self._known[name][0] < asked_at:
                    self._known[name] = asked_at, found[name]
        return found

    def _mend(self, name: str, error: KafkaException) -> TopicDescription:
        code = error.args[0].code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            if not self._create:
                raise TopicMissingError(
                    name,
                    f"output topic {name!r} does not exist. Create it, or set [publisher] create_topics = true "
                    "(OUTBOX_PUBLISHER__CREATE_TOPICS); the lane then continues by itself",
                ) from error
            self._create_topic(NewTopic(name))
            return self._description(name)
        raise error

    def _describe(self, names: list[str]) -> "dict[str, Future[TopicDescription]]":
        return self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)

    def _description(self, name: str, asked: "Future[TopicDescription] | None" = None) -> TopicDescription:
        """Wait for the answer of `_describe`; ask where nobody has."""
        with needing("Describe", "topic", name):
            return answer(asked or self._describe([name])[name], self._give_up)

    def _create_topic(self, topic: NewTopic) -> None:
        created = self._admin.create_topics(
            [topic], operation_timeout=self._timeout_s, request_timeout=self._timeout_s
        )
        try:
            with needing("Create", "topic", topic.topic):
                answer(created[topic.topic], self._give_up)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _config(self, topic: str) -> dict[str, ConfigEntry]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource]
        with needing("DescribeConfigs", "topic", topic):
            return answer(asked, self._give_up)
