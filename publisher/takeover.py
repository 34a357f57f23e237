"""Taking a lane over in Kafka, steps 2 and 3 of the protocol: fence whoever had it, then read how far it got."""

import logging
import time
from collections.abc import Callable
from uuid import UUID

from confluent_kafka import KafkaException, Producer

from db.settings import Settings
from publisher import clients
from publisher.checks import LaneStoppedError, Why
from publisher.open_transactions import explanation
from publisher.progress_reader import Newest, OpenTransactionError, read_newest
from publisher.shared import Epoch
from publisher.topics import Topics


def transactional_id(prefix: str, outbox_uuid: UUID, epoch: int, lane: int) -> str:
    """Return the transactional id of a lane."""
    return f"{prefix}-{outbox_uuid}-{epoch}-{lane}"


def fencing_producer(
    settings: Settings,
    transactional_id: str,
    batch_bytes: int | None,
    give_up: Callable[[], bool],
    logger: logging.Logger | None = None,
) -> Producer:
    """Return an initialised producer: older ones with this id are fenced, their open transaction has ended.

    `batch_bytes`, `logger`: see `clients.lane_producer`.

    Raises KafkaException, _TIMED_OUT also when `give_up` says so.
    """
    producer = clients.lane_producer(
        settings.kafka, transactional_id, settings.publisher.transaction_timeout_ms, batch_bytes, logger
    )
    initialise(producer, settings.kafka.request_timeout_s, give_up)
    return producer


def initialise(producer: Producer, timeout_s: float, give_up: Callable[[], bool]) -> None:
    """Fence older producers with this one's transactional id and end their open transaction.

    Raises KafkaException, _TIMED_OUT also when `give_up` says so.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            # In slices, so that a stop does not wait for a Kafka that is away; a timed out call is taken up again.
            producer.init_transactions(1.0)
            return
        except KafkaException as error:
            # The code is the last answer where there was one (CONCURRENT_TRANSACTIONS: the old one's end is under way).
            if not error.args[0].retriable() or give_up() or time.monotonic() > deadline:
                raise


def newest_progress(
    settings: Settings, topics: Topics, topic: str, epoch: Epoch, lane: int, give_up: Callable[[], bool]
) -> Newest:
    """Return the lane's newest progress record, and those of later epochs that nobody else would look at.

    Lane 0 also looks into the partitions that only a later epoch with more lanes can have made.
    Raises LaneStoppedError for a record that cannot be read or behind an open transaction, KafkaException.
    """
    partitions = [lane]
    if lane == 0:
        partitions += range(epoch.lanes, topics.partitions(topic))
    found = [
        _newest(settings, topics, topic, partition, epoch.epoch, lane, give_up) for partition in partitions
    ]
    later = {place: record for newest in found for place, record in newest.later.items()}
    return Newest(found[0].record, later)


def _newest(
    settings: Settings,
    topics: Topics,
    topic: str,
    partition: int,
    epoch: int,
    lane: int,
    give_up: Callable[[], bool],
) -> Newest:
    high_watermark = topics.high_watermark(topic, partition)
    consumer = clients.progress_consumer(settings.kafka)
    try:
        return read_newest(
            consumer,
            topic,
            partition,
            epoch,
            lane,
            high_watermark,
            settings.kafka.request_timeout_s,
            give_up,
        )
    except OpenTransactionError as error:
        reason = explanation(error.topic, {error.partition: error.offset})
        raise LaneStoppedError(Why.OPEN_TRANSACTION, reason, retry=True) from error
    except ValueError as error:
        raise unreadable(topic, partition, error) from error
    finally:
        consumer.close()


def unreadable(topic: str, partition: int, error: ValueError) -> LaneStoppedError:
    """Return how a lane stops over a record that is no progress record of this version."""
    return LaneStoppedError(
        Why.OTHER_OUTBOX,
        f"{topic}[{partition}]: {error}. Something else writes to this progress topic, or a newer publisher did; "
        "use that version, or name another [publisher] progress_topic before the first start",
    )
