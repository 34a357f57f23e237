"""Describes and creates the topics that a publisher writes: the compacted progress topic, and the output topics with their limits.

If an output topic is missing, it is created, stops the lane, or, if a person has decided so, has its rows parked (lane/parking.py). A topic
that was deleted and created again has another id; `check_topics`, in publisher/outbox/topic_ids.py, then stops the lane.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them, without saying so to mypy
    ConfigEntry,
    TopicDescription,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from publisher.kafka.single_flight import SingleFlight
from publisher.kafka.written_ends import WrittenEnds
from publisher.protocol import remediation
from publisher.protocol.refusals import TopicLimits
from publisher.protocol.stop_reasons import StoppedError, StopReason, TopicMissingError
from service.kafka.client import KafkaAdmin
from service.kafka.cluster import Cluster, cluster
from service.kafka.rights import needing
from service.kafka.topic_ids import topic_id_text
from service.kafka.topics import MISSING_S, existing_topics, known_topics, partition_offsets, topic_configs

_log = structlog.get_logger()

# Small segments: a lane reads its progress back at every start, and compaction does not touch the active segment.
_PROGRESS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}

# Brokers return these errors if they refuse the progress topic's settings, until the settings or the brokers change.
_REFUSES_SETTINGS = (
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_REQUEST,
)

# A metadata request without a topic returns all topics, too many on a large cluster. So this one is named. It need not exist, and is not
# created.
_ANY_TOPIC = "outbox-progress"
_TRANSACTION_LOG = "__transaction_state"
_LOOK_S = 2.0
# The replicas of a new progress topic if [publisher] progress_replication is not set, at most one per broker.
_REPLICATION = 3


class OutputTopic(NamedTuple):
    """A topic as Kafka describes it. `topic_id` changes when the topic is deleted and created again.

    `is_compacted`: whether its `cleanup.policy` is compact alone, as required of a progress topic.
    """

    topic_id: str
    partitions: int
    max_message_bytes: int
    is_compacted: bool = False

    def limits(self, *, compressed: bool) -> TopicLimits:
        """Return its limits for a producer that compresses, or not."""
        return TopicLimits(self.partitions, None if compressed else self.max_message_bytes)


def _check_replicas(name: str, topic: TopicDescription, least: int) -> None:
    """Raise StoppedError for a topic with fewer replicas than min.insync.replicas: every produce request to it would time out."""
    replicas = min(len(partition.replicas) for partition in topic.partitions)
    if replicas < least:
        raise StoppedError(
            StopReason.OUTPUT_TOPIC_UNWRITABLE,
            f"output topic {name!r} has min.insync.replicas={least}, but only {replicas} replica{'s' * (replicas != 1)}, so that Kafka "
            "takes no record. Lower min.insync.replicas or add replicas; the lane then continues by itself",
            retry=True,
        )


def _progress_refused(topic: NewTopic, error: KafkaException) -> StoppedError:
    config = ", ".join(f"{name}={value}" for name, value in _PROGRESS_CONFIG.items())
    return StoppedError(
        StopReason.PROGRESS_REFUSED,
        f"Kafka refuses to make the progress topic {topic.topic} with {topic.replication_factor} replicas, {config}: "
        f"{error.args[0].str()}. Lower [publisher] progress_replication (OUTBOX_PUBLISHER__PROGRESS_REPLICATION) to the number of brokers "
        f"at most and start the publisher again, or make the topic with {topic.num_partitions} partitions and cleanup.policy=compact, as "
        "the brokers allow; the lane then continues by itself",
        retry=True,
    )


class Topics:
    """Kafka's descriptions of topics. A description older than `max_age_s` is read again. Shared by all lanes."""

    def __init__(
        self,
        admin: KafkaAdmin,
        *,
        timeout_s: float,
        create: bool,
        give_up: Callable[[], bool] = lambda: False,
        max_age_s: float = 60.0,
        missing_s: float = MISSING_S,
    ) -> None:
        """`create`: whether to create missing output topics. `give_up`: called while waiting; true ends the wait.

        `missing_s`: for how many seconds to ask again for a topic that the brokers do not know, if this client may not ask the
        controller.
        """
        self._admin = admin
        self._timeout_s = timeout_s
        self._create = create
        self._give_up = give_up
        self._max_age_s = max_age_s
        self._missing_s = missing_s
        # Held for a moment only, never during a request: otherwise the lanes would wait one after another for a Kafka that does not answer.
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, OutputTopic]] = {}
        self._forgotten: dict[str, float] = {}
        self._missing: dict[str, float] = {}
        self._flights = SingleFlight(give_up)
        self._warned = False
        self.written = WrittenEnds()
        """The offsets that the transactions of this process have written."""

    def cluster_id(self) -> str:
        """Return the id of the cluster that answers now. Raises KafkaException if Kafka does not answer."""
        return self._cluster().cluster_id

    def brokers(self) -> int:
        """Return how many brokers the cluster has now. Raises KafkaException."""
        return self._cluster().brokers

    def _cluster(self) -> Cluster:
        return cluster(self._admin, _ANY_TOPIC, self._timeout_s, self._give_up)

    def describe(self, names: Iterable[str], *, newer_than: float = 0.0) -> dict[str, OutputTopic]:
        """Return a description of each named output topic, not older than `newer_than` (time.monotonic); create missing topics if `create`.

        Raises StoppedError, to be retried, for a topic that is missing or has fewer replicas than min.insync.replicas; KafkaException.
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
        """Return whether a topic is missing. Only the answer that it is missing is kept, for `max_age_s`. Raises KafkaException."""
        with self._lock:
            known = topic in self._missing and self._missing[topic] > time.monotonic() - self._max_age_s
        if known:
            return True
        if self._existing([topic]):
            return False
        with self._lock:
            self._missing[topic] = time.monotonic()
        return True

    def forget(self, names: Iterable[str]) -> None:
        """Have the next `describe` ask Kafka again for these topics."""
        now = time.monotonic()
        with self._lock:
            self._forgotten |= dict.fromkeys(names, now)

    def lack_transaction_log(self) -> bool:
        """Return whether Kafka answers that it has no transaction log. The first transaction creates it."""
        try:
            return not known_topics(self._admin, [_TRANSACTION_LOG], _LOOK_S, self._give_up)
        except KafkaException:
            return False  # Kafka is unavailable, or this publisher may not ask

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the present ids of the topics that exist among these. Raises KafkaException."""
        found = self._existing(list(names))
        return {name: topic_id_text(topic.topic_id) for name, topic in found.items()}

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, 0 if it does not exist. Raises KafkaException."""
        found = self._existing([topic])
        return len(found[topic].partitions) if found else 0

    def ensure_progress(
        self, topic: str, partitions: int, replication: int, *, create: bool, lost: str = remediation.LOST
    ) -> None:
        """Make sure that the progress topic exists, is compacted and has at least `partitions` partitions. `lost`: the remedy for a lost
        topic.

        Raises StoppedError if the topic is not compacted, missing while `create` is false, or refused by Kafka; KafkaException.
        """
        self._flights.ask(
            (topic, partitions, replication, create),
            lambda: self._ensure_progress(topic, partitions, replication, create, lost),
        )

    def _ensure_progress(
        self, topic: str, partitions: int, replication: int, create: bool, lost: str
    ) -> None:
        look = self._known_now if create else self._existing
        found = look([topic]).get(topic)
        if found is None and not create:
            raise StoppedError(
                StopReason.KAFKA_LOST,
                f"the progress topic {topic} does not exist, though this outbox has delivered before: the cluster "
                f"was lost, rebuilt or is another one, or the topic was deleted. {lost}",
            )
        if found is None:
            if replication < 0:
                replication = min(_REPLICATION, self._cluster().brokers)
            new = NewTopic(
                topic, num_partitions=partitions, replication_factor=replication, config=_PROGRESS_CONFIG
            )
            try:
                self._create_topic(new)
            except KafkaException as error:
                if error.args[0].code() in _REFUSES_SETTINGS:
                    raise _progress_refused(new, error) from error
                raise
            found = self._existing([topic]).get(topic)
            if found is not None:
                self.written.identify(topic, topic_id_text(found.topic_id))
            return
        self.written.identify(topic, topic_id_text(found.topic_id))
        if (
            not self._warned
            and min(len(each.replicas) for each in found.partitions) == 1
            and self._cluster().brokers > 1
        ):
            self._warned = True
            _log.warning("progress_topic_unreplicated", topic=topic)
        policy = str(self._configs([topic])[topic]["cleanup.policy"].value)
        if policy != "compact":
            raise StoppedError(
                StopReason.PROGRESS_NOT_COMPACTED,
                f"topic {topic} has cleanup.policy={policy}: Kafka would delete the lanes' positions after a while, and "
                "the next start would deliver everything again. Set cleanup.policy=compact on it, or name another "
                "[publisher] progress_topic before the first start",
                retry=True,
            )
        if len(found.partitions) < partitions:
            grow = [NewPartitions(topic, partitions)]
            grown = self._admin.answers(
                lambda client: client.create_partitions(grow, request_timeout=self._timeout_s), self._give_up
            )
            with needing("Alter", "topic", topic):
                grown[topic].result()

    def ends(self, topic: str, partitions: Iterable[int], *, committed: bool = False) -> dict[int, int]:
        """Return the ends of partitions as a read_uncommitted reader sees them; `committed`: as a read_committed reader does.

        Raises KafkaException. Unless `committed`, it is also raised for an end below the offsets that this process has written.
        """
        found = self._ends(topic, partitions, committed)
        if not committed:
            self.written.check(topic, found)
        return found

    def _ends(self, topic: str, partitions: Iterable[int], committed: bool) -> dict[int, int]:
        wanted = [(topic, partition) for partition in partitions]
        found = partition_offsets(
            self._admin, wanted, "latest", self._timeout_s, self._give_up, committed=committed
        )
        return {partition: end for (_, partition), end in found.items()}

    def high_watermark(self, topic: str, partition: int, *, committed: bool = False) -> int:
        """Return the end of one partition, as `ends` does."""
        return self.ends(topic, [partition], committed=committed)[partition]

    def _ask(self, names: list[str]) -> dict[str, OutputTopic]:
        asked_at = time.monotonic()
        described = self._known_now(names)
        topics = {
            name: described[name] if name in described else self._create_missing(name) for name in names
        }
        found = {}
        for name, config in self._configs(names).items():
            _check_replicas(name, topics[name], int(str(config["min.insync.replicas"].value)))
            max_bytes = int(str(config["max.message.bytes"].value))
            found[name] = OutputTopic(
                topic_id_text(topics[name].topic_id),
                len(topics[name].partitions),
                max_bytes,
                is_compacted=config["cleanup.policy"].value == "compact",
            )
            self.written.identify(name, found[name].topic_id)
        with self._lock:
            for name, topic in found.items():
                self._missing.pop(name, None)
                # Another lane may have sent a later request and received the answer sooner.
                if name not in self._known or self._known[name][0] < asked_at:
                    self._known[name] = asked_at, topic
        return found

    def _create_missing(self, name: str) -> TopicDescription:
        if not self._create:
            raise TopicMissingError(
                name,
                f"output topic {name!r} does not exist. Create it, or set [publisher] create_topics = true "
                "(OUTBOX_PUBLISHER__CREATE_TOPICS); the lane then continues by itself",
            )
        self._create_topic(NewTopic(name))
        created = self._existing([name])
        if not created:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{name!r} was deleted again"))
        return created[name]

    def _create_topic(self, topic: NewTopic) -> None:
        timeout_s = self._timeout_s
        created = self._admin.answers(
            lambda client: client.create_topics(
                [topic], operation_timeout=timeout_s, request_timeout=timeout_s
            ),
            self._give_up,
        )
        try:
            with needing("Create", "topic", topic.topic):
                created[topic.topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _existing(self, names: list[str]) -> dict[str, TopicDescription]:
        return existing_topics(self._admin, names, self._timeout_s, self._give_up, self._missing_s)

    def _known_now(self, names: list[str]) -> dict[str, TopicDescription]:
        return known_topics(self._admin, names, self._timeout_s, self._give_up)

    def _configs(self, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        return topic_configs(self._admin, names, self._timeout_s, self._give_up)
