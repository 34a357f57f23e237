"""Reads the partitions of one member of the group: decides where each partition begins, and fetches its records from Kafka.

The position in the database decides where a partition begins. The group's offsets are written for lag tools, and never read. A partition
without a position gets one before its first record is read; in a new topic all partitions get theirs together.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]

from outbox_consumer.errors import PositionError, SettingsError, TopicChangedError
from outbox_consumer.outputs import NamedPartition, Output, output_of
from outbox_consumer.store import Position, Store

FORCED: dict[str, object] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
"""Options that exactly-once requires; other values are refused."""
Start = Literal["earliest", "latest"]

_ANSWER_S = 30.0
_POLL_S = 1.0
_SETTLE_S = 10.0
_QUIET_S = 60.0
# Transient errors: the client connects again, or joins the group again.
_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,
}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}
# librdkafka prints standard base64; Kafka's tools, and the outbox, print URL-safe base64.
_URL_SAFE = str.maketrans("+/", "-_")

_log = logging.getLogger("outbox_consumer")


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the consumer. Raises SettingsError if one contradicts `FORCED`."""
    forced = dict(FORCED)
    if str(options.get("group.protocol", "classic")).lower() == "classic":
        # Both protocols then rebalance incrementally.
        forced["partition.assignment.strategy"] = "cooperative-sticky"
    for name, value in forced.items():
        if str(options.get(name, value)).lower() != str(value).lower():
            raise SettingsError(f"{name} must be {value}, not {options[name]}: leave it out")
    if "default.topic.config" in options:
        raise SettingsError("default.topic.config is obsolete: set its options beside the others")
    if not options.get("group.id"):
        raise SettingsError("group.id is missing: it names the consumer, in Kafka and in its tables")
    return {**options, **forced}


class Partitions:
    """Reads the partitions that the group assigns. librdkafka's callbacks run inside `fetch` and `close`, when no transaction is open."""

    def __init__(
        self,
        store: Store,
        options: Mapping[str, Any],
        topics: Sequence[str],
        start: Start,
        consumer: Callable[[dict[str, Any]], Consumer] = Consumer,
        admin: Callable[[dict[str, Any]], AdminClient] = AdminClient,
    ) -> None:
        """Join the group. Raises SettingsError, KafkaException."""
        options = client_options(options)
        self._store = store
        self._start = start
        self._read: dict[NamedPartition, int] = {}
        self._ends: dict[NamedPartition, int] = {}
        self._topics = list(topics)
        self._heard: dict[NamedPartition, float] = {}
        self._answered = time.monotonic()
        self._failure: Exception | None = None
        # Without a log, because this client would warn about options that only a consumer knows.
        own = {name: value for name, value in options.items() if name not in (*FORCED, "on_commit")}
        self._admin = admin({**own, "log_level": 0})
        self._consumer = consumer(options)
        self._consumer.subscribe(
            self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def fetch(self, most: int) -> list[Output]:
        """Return the fetched records; wait up to a second for the first one. The records of a partition are in order.

        Raises TopicChangedError, KafkaException, and the database's errors.
        """
        first = self._consumer.poll(_POLL_S)
        messages = [] if first is None else [first]
        if messages and most > 1:
            messages += self._consumer.consume(most - 1, timeout=0)
        if self._failure is not None:
            raise self._failure
        outputs = [output_of(message) for message in messages if not self._is_event(message)]
        if outputs:
            self._answered = time.monotonic()
            self._heard |= dict.fromkeys({output.named_partition for output in outputs}, self._answered)
        elif time.monotonic() - self._answered > _QUIET_S:
            # A client that once received metadata without brokers never connects again, and does not say so (librdkafka issue 5301).
            self._consumer.list_topics(self._topics[0], timeout=_ANSWER_S)
            self._answered = time.monotonic()
        return outputs

    def check(self, partition: NamedPartition, position: Position) -> None:
        """Raise PositionError if the position is below the offset up to which records were read: Kafka would not send those in between
        again."""
        if position.next_offset < self._read.get(partition, 0):
            raise PositionError(
                f"the position of {partition} went back to {position.next_offset} under the running loop, which has read it to "
                f"{self._read[partition]}: was the database restored? Start again"
            )

    def passed(self, partition: NamedPartition, next_offset: int, leader_epoch: int | None) -> None:
        """Note that every record below `next_offset` is consumed, and commit the offset for lag tools."""
        self._read[partition] = max(next_offset, self._read.get(partition, 0))
        try:
            self._consumer.commit(offsets=[_offset(partition, next_offset, leader_epoch)], asynchronous=True)
        except KafkaException as error:
            _log.debug("no offset of %s for lag tools: %s", partition, error)

    def settled(self) -> dict[NamedPartition, int]:
        """Return the new ends of quiet partitions that have only commit markers, which are no records, after the last record.

        If a position stayed below a marker, retention of the marker would look like a loss of unconsumed records.
        """
        now = time.monotonic()
        quiet = [each for each in self._ends if now - self._heard.get(each, -_SETTLE_S) >= _SETTLE_S]
        self._heard |= dict.fromkeys(quiet, now)
        ends = {partition: self._ends.pop(partition) for partition in quiet}
        return {partition: end for partition, end in ends.items() if end > self._read.get(partition, end)}

    def ask_topic(self, topic: str) -> "Future[TopicDescription]":
        """Ask Kafka for the topic that has this name now."""
        asked: Future[TopicDescription] = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=_ANSWER_S
        )[topic]
        return asked

    def confirm(
        self, partition: NamedPartition, position: Position, answer: "Future[TopicDescription]"
    ) -> None:
        """Raise TopicChangedError if the position was stored for another topic, KafkaException if Kafka does not describe the topic."""
        _compare(partition, position, _topic_id(answer.result()))

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        named = [NamedPartition(each.topic, each.partition) for each in partitions]
        try:
            positions: dict[NamedPartition, Position] = {}
            for topic in {partition.topic for partition in named}:
                positions |= self._positions(topic)
            for partition in named:
                self._check_bounds(partition, positions[partition])
                self._read[partition] = positions[partition].next_offset
            begins = [_offset(partition, *positions[partition][1:]) for partition in named]
        except Exception as error:  # noqa: BLE001  # raised by `fetch`: a client's callback is no place for it
            self._failure = error
            return
        consumer.incremental_assign(begins)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The records of these partitions are either committed or not, so nothing has to be finished. The client unassigns them itself.
        for each in partitions:
            self._ends.pop(NamedPartition(each.topic, each.partition), None)
            self._heard.pop(NamedPartition(each.topic, each.partition), None)

    def _positions(self, topic: str) -> dict[NamedPartition, Position]:
        """Return the position of each partition. Partitions that have none get one first.

        All partitions of a new topic begin at `start`, at the same moment. A partition added to a known topic begins at its first record.
        """
        description = self.ask_topic(topic).result()
        topic_id = _topic_id(description)
        known = self._store.positions(topic)
        for partition, position in known.items():
            _compare(NamedPartition(topic, partition), position, topic_id)
        starts = {}
        for partition in (each.id for each in description.partitions):
            if partition not in known:
                low, high = self._bounds(NamedPartition(topic, partition))
                starts[partition] = high if self._start == "latest" and not known else low
        if starts:
            self._store.add_positions(topic, topic_id, starts)
            known = self._store.positions(topic)
        return {NamedPartition(topic, partition): position for partition, position in known.items()}

    def _bounds(self, partition: NamedPartition) -> tuple[int, int]:
        found = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=_ANSWER_S)
        if found is None:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"no answer about the ends of {partition}")
            )
        return found

    def _check_bounds(self, partition: NamedPartition, position: Position) -> None:
        low, high = self._bounds(partition)
        if position.next_offset > high:
            raise TopicChangedError(
                f"{partition} ends at {high}, but is consumed to {position.next_offset}: Kafka has lost records. To consume new records "
                f"only: {_repair(partition, high)}"
            )
        if position.next_offset < low:
            raise TopicChangedError(
                f"{partition} begins at {low}, but is consumed to {position.next_offset} only: retention has deleted the records between. "
                f"To continue without them (`publisher replay` sends them again): {_repair(partition, low)}"
            )

    def _is_event(self, message: Message) -> bool:
        """Whether the message is an event and not a record. Raises TopicChangedError, KafkaException."""
        error = message.error()
        if error is None:
            return False
        partition = NamedPartition(message.topic() or "", message.partition() or 0)
        if error.code() == KafkaError._PARTITION_EOF:
            self._ends[partition] = message.offset() or 0
        elif error.code() in _OUT_OF_RANGE:
            position = self._store.positions(partition.topic).get(partition.partition)
            if position is not None:
                self.confirm(partition, position, self.ask_topic(partition.topic))
                self._check_bounds(partition, position)
            raise TopicChangedError(f"{partition} does not continue where it was read to: {error.str()}")
        elif error.code() not in _PASSING:
            raise KafkaException(error)
        else:
            _log.warning("kafka: %s", error.str())
        return True


def _topic_id(description: TopicDescription) -> str:
    return str(description.topic_id).translate(_URL_SAFE)


def _compare(partition: NamedPartition, position: Position, topic_id: str) -> None:
    if topic_id != position.topic_id:
        raise TopicChangedError(
            f"topic {partition.topic} was deleted and created again, or another cluster answers: its id is {topic_id}, the position's "
            f"{position.topic_id}. To consume the new topic from its beginning (outputs that are known by their outbox-id stay consumed "
            f"once): {_repair(partition, 0, topic_id)}"
        )


def _offset(partition: NamedPartition, offset: int, leader_epoch: int | None) -> TopicPartition:
    """Return an offset with the epoch of the record before it. The epoch lets Kafka detect a log that was truncated and written again."""
    if leader_epoch is None:
        return TopicPartition(*partition, offset)
    return TopicPartition(*partition, offset, leader_epoch=leader_epoch)


def _repair(partition: NamedPartition, next_offset: int, topic_id: str | None = None) -> str:
    """Return the statement that a person should run. Topic names and ids have no quotes."""
    change, where = f"next_offset = {next_offset}, leader_epoch = NULL", f"topic = '{partition.topic}'"
    if topic_id is None:
        where += f" AND partition = {partition.partition}"
    else:
        change += f", first_offset = {next_offset}, topic_id = '{topic_id}'"
    return f"UPDATE outbox_consumer_position SET {change} WHERE consumer = … AND {where}"  # noqa: S608  # for people
