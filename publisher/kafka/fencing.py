"""Taking over in Kafka: whoever had a transactional id before is fenced, and its open transaction has ended."""

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from publisher.kafka import clients
from service.kafka_rights import needing
from service.settings import KafkaSettings

_SLICE_S = 1.0


def fencing_producer(
    kafka: KafkaSettings,
    transactional_id: str,
    transaction_timeout_ms: int,
    batch_bytes: int,
    give_up: Callable[[], bool],
    logger: logging.Logger | None = None,
) -> Producer:
    """Return an initialised producer. `batch_bytes`, `logger`: see `clients.lane_producer`.

    Raises KafkaException, _TIMED_OUT also when `give_up` says so.
    """
    producer = clients.lane_producer(kafka, transactional_id, transaction_timeout_ms, batch_bytes, logger)
    deadline = time.monotonic() + kafka.request_timeout_s
    while True:
        try:
            # In slices, so that a stop does not wait for a Kafka that is away; a timed out call is taken up again.
            with needing("Write", "transactional id", transactional_id):
                producer.init_transactions(_SLICE_S)
            return producer
        except KafkaException as error:
            # The code is the last answer where there was one (CONCURRENT_TRANSACTIONS: the old one's end is under way).
            if not error.args[0].retriable() or give_up() or time.monotonic() > deadline:
                raise
