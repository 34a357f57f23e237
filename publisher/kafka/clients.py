"""Makes librdkafka clients, all configured alike: our defaults, overridden by [kafka.options], then the options that exactly-once requires.

Each client reads [kafka] secret_options_file and the certificates when it is made. If a client's login is refused, a new client is made: a
lane's producer at the lane's next attempt (publisher/lane/worker.py), an administrative client by service/kafka/renewable_client.py. So a
password that changes in the file needs no restart.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from service.errors import SettingsError
from service.kafka.client import admin_client
from service.kafka.reading import RangeReader, committed_consumer
from service.kafka.rights import needing
from service.logins.kafka import LoginFailedError, logged_in
from service.settings import KafkaSettings

# Records are limited by the brokers and topics, not by the client's default of 1 MB.
_MAX_MESSAGE_BYTES = 1_000_000_000
_BATCH_BYTES = 1_000_000
# librdkafka's default of queue.buffering.max.kbytes.
_QUEUE_KBYTES = 1_048_576
_ABORT_WITHIN_S = 1.0
# librdkafka requires a group id, although this consumer joins no group and commits no offset.
_PROGRESS_GROUP = "outbox-publisher-progress"

# librdkafka's log lines are dropped: the lane logs each change of state once.
_silent = logging.getLogger("publisher.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def client_max_bytes(settings: KafkaSettings) -> int:
    """Return the largest record that a producer accepts. A record larger than its queue would wait for room for ever."""
    options = settings.client()
    queue_bytes = int(options.get("queue.buffering.max.kbytes", _QUEUE_KBYTES)) * 1024
    return min(int(options.get("message.max.bytes", _MAX_MESSAGE_BYTES)), queue_bytes)


def batch_bytes(settings: KafkaSettings) -> int:
    """Return the producer's `batch.size`: from [kafka.options], else our default."""
    return int(settings.client().get("batch.size", _BATCH_BYTES))


def compresses(settings: KafkaSettings) -> bool:
    """Whether records are compressed, so that only the broker knows their size."""
    options = settings.client()
    return options.get("compression.type", options.get("compression.codec", "none")) != "none"


def lane_producer(
    settings: KafkaSettings,
    transactional_id: str,
    transaction_timeout_ms: int,
    batch_bytes: int | None,
    logger: logging.Logger | None = None,
    on_error: Callable[[KafkaError], None] | None = None,
) -> Producer:
    """Return a lane's transactional producer. The caller must call `init_transactions`.

    `batch_bytes` limits a record batch (None: only the default does), because librdkafka does not split a batch that
    a topic refuses. A larger single record is still sent, in a batch of its own. `logger` receives librdkafka's log,
    `on_error` its connection errors.
    """
    defaults: dict[str, Any] = {
        # The default of Java clients, so that a key's partition does not depend on the client that writes.
        "partitioner": "murmur2_random",
        # A commit sends the remaining records at once. Until then only full batches are sent: with a short linger, librdkafka's thread
        # would wake up again and again while rows are produced.
        "linger.ms": 100,
        "queue.buffering.max.messages": 1_000_000,
        "message.max.bytes": _MAX_MESSAGE_BYTES,
        "batch.size": _BATCH_BYTES,
    }
    required: dict[str, Any] = {
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        "transaction.timeout.ms": transaction_timeout_ms,
        "allow.auto.create.topics": False,
        # coordinator_link.py reads in this log that the connection to the coordinator was closed. A request that times out closes it.
        "log_level": 6,
        "log.connection.close": True,
        "socket.max.fails": 1,
    }
    options = defaults | settings.client(**required)
    if on_error is not None:
        options["error_cb"] = on_error
    if batch_bytes is not None:
        options["batch.size"] = min(int(options["batch.size"]), batch_bytes)
    return Producer(logged_in(options), logger=logger or _silent)


def discard_producer(producer: Producer) -> None:
    """Discard a lane's producer in any state. If its transaction does not end here, the next fencing ends it.

    If a producer is destroyed too early, librdkafka 2.16 ends the process in two cases:

    - The producer is registering the first partition of the transaction. The coordinator's thread fails the request before the thread that
      sent the request has counted it (an assertion, rdkafka_txnmgr.c: txn_req_cnt). The abort keeps the producer from registering more.
    - The producer was fenced with records in flight. Each answer frees the text of the last fatal error, which the end of the producer has
      already freed (rd_kafka_txns_term, rd_kafka_txn_set_fatal_error). After a complete purge no answer is handled any more.
    """
    # The abort fails if no transaction is open, if the transaction can only be fenced, and if Kafka does not answer. In none of these
    # cases does librdkafka register a first partition later.
    with suppress(KafkaException):
        producer.abort_transaction(_ABORT_WITHIN_S)
    # Only one of the two calls waits for the purge: confluent-kafka 2.16 inverts `blocking`, and a later version may correct that.
    for blocking in (True, False):
        producer.purge(blocking=blocking)


def check_options(settings: KafkaSettings, transaction_timeout_ms: int) -> None:
    """Raise SettingsError for [kafka.options] that librdkafka refuses or that exactly-once forbids. Sends nothing to Kafka.

    Raises LoginFailedError if a login returns no token, because no client can be made without it.
    """
    try:
        _refuse_unsafe(settings, transaction_timeout_ms)
        client_max_bytes(settings)
        admin_client(settings)
        # A client of each kind, because each kind knows options that the others refuse or ignore.
        lane_producer(settings, "check", transaction_timeout_ms, None)
        progress_consumer(settings).close()
    except LoginFailedError:
        raise
    except (KafkaException, OSError, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise SettingsError(
            f"no Kafka client can be made with these settings: {text}. Correct [kafka.options] (OUTBOX_KAFKA__OPTIONS)"
        ) from error


def _refuse_unsafe(settings: KafkaSettings, transaction_timeout_ms: int) -> None:
    """Raise SettingsError for an option that the publisher sets itself, unless the value is the publisher's own."""
    for name, value in settings.client().items():
        if name == "transaction.timeout.ms":
            wanted, reason = {str(transaction_timeout_ms)}, "it is [publisher] transaction_timeout_ms"
        elif name in _FIXED:
            wanted, reason = _FIXED[name]
        else:
            continue
        if str(value).lower() not in wanted:
            raise SettingsError(
                f"[kafka.options] {name} = {value!r} is refused: {reason}. Remove it (OUTBOX_KAFKA__OPTIONS, [kafka] secret_options_file)"
            )


_FIXED: dict[str, tuple[set[str], str]] = {
    "transactional.id": (set(), "each lane has its own; [publisher] transactional_id_prefix is their start"),
    "enable.idempotence": ({"true"}, "without it a retry could repeat or reorder events"),
    "acks": ({"all", "-1"}, "an acknowledged event could be lost"),
    "request.required.acks": ({"all", "-1"}, "an acknowledged event could be lost"),
    "allow.auto.create.topics": ({"false"}, "[publisher] create_topics decides that"),
    "delivery.report.only.error": ({"false"}, "the offsets of delivered events are recorded"),
    "socket.max.fails": (
        {"1"},
        "a commit that times out would be asked again over the same connection, and both may arrive",
    ),
    "isolation.level": ({"read_committed"}, "a lane's position is read from committed records only"),
    "enable.partition.eof": ({"true"}, "the end of a lane's position is known by it"),
    "enable.auto.commit": ({"false"}, "the position is in the progress topic"),
    "auto.offset.reset": (
        {"earliest", "smallest", "beginning"},
        "a lane's position is looked for from the start",
    ),
}
"""{option that the user may not choose: (values that are accepted because they change nothing, the reason)}."""


def progress_consumer(settings: KafkaSettings) -> Consumer:
    """Return a consumer of committed records that reports the ends of partitions and keeps no group offsets."""
    return committed_consumer(settings.client(), _group(settings))


def committed_reader(
    settings: KafkaSettings, give_up: Callable[[], bool] = lambda: False, timeout_s: float | None = None
) -> RangeReader:
    """Return a reader of committed records, which the caller must close. `timeout_s`: the longest wait for the next record, by default that
    of a request."""
    return RangeReader(
        lambda: progress_consumer(settings),
        settings.request_timeout_s if timeout_s is None else timeout_s,
        give_up,
    )


@contextmanager
def reading(settings: KafkaSettings, *topics: str) -> Iterator[None]:
    """Name the missing right if Kafka refuses a read of `committed_reader` in the block. Raises KafkaException."""
    with needing("Read", "topic", *topics), needing("Describe", "consumer group", _group(settings)):
        yield


def _group(settings: KafkaSettings) -> str:
    return str(settings.client().get("group.id", _PROGRESS_GROUP))
