"""Takes a transactional id over in Kafka. This fences its former holder and ends the holder's open transaction.

The former holder, a lane, handles the error as any failure of Kafka: it discards its producer, and its next opening finds the lease taken
(`_handle` and `_open` in lane/worker.py).
"""

import logging
import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.kafka import clients
from publisher.kafka.topics import Topics
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.kafka.renewable_client import Complaints
from service.kafka.rights import needing
from service.settings import KafkaSettings

_SLICE_S = 1.0
_END_WITHIN_S = 5.0

_log = structlog.get_logger()


def fencing_producer(
    kafka: KafkaSettings,
    topics: Topics,
    transactional_id: str,
    transaction_timeout_ms: int,
    batch_bytes: int,
    give_up: Callable[[], bool],
    logger: logging.Logger | None = None,
    complaints: Complaints | None = None,
) -> Producer:
    """Return an initialised producer. `batch_bytes`, `logger`: see `clients.lane_producer`; `complaints` receives the connection errors.

    Raises StoppedError if the cluster refuses the producer; KafkaException, _TIMED_OUT also when `give_up` returns true.
    """
    complaints = complaints or Complaints()
    producer = clients.lane_producer(
        kafka, transactional_id, transaction_timeout_ms, batch_bytes, logger, complaints
    )
    deadline = time.monotonic() + kafka.request_timeout_s
    while True:
        try:
            with needing("Write", "transactional id", transactional_id):
                _begin(producer, complaints)
            return producer
        except KafkaException as error:
            # If Kafka has answered, the code is the one of its last answer (CONCURRENT_TRANSACTIONS: the old transaction is still ending).
            passing = error.args[0].retriable()
            if passing and not give_up() and time.monotonic() < deadline:
                continue
            if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise _timeout_refused(transaction_timeout_ms) from error
            if passing and not give_up() and topics.lack_transaction_log():
                raise _no_transaction_log(topics) from error
            explained = complaints.explain(error)
            if explained is error and passing and not give_up():
                explained = _unanswered(error, transactional_id)
            raise explained from error


def end_transaction(
    kafka: KafkaSettings, topics: Topics, transactional_id: str, transaction_timeout_ms: int
) -> bool:
    """End the open transaction of this id, for a caller that does not fence again. An open transaction would hold up the readers of its
    topics until its timeout.

    A new producer epoch ends the transaction. An abort would not be enough: in the old epoch, a delayed record could begin a transaction
    again. Best effort; returns whether the transaction has ended.
    """
    deadline = time.monotonic() + _END_WITHIN_S
    try:
        fencing_producer(
            kafka, topics, transactional_id, transaction_timeout_ms, 1, lambda: time.monotonic() > deadline
        ).purge()
    except (KafkaException, StoppedError) as error:
        _log.debug("transaction_left_open", transactional_id=transactional_id, reason=str(error))
        return False
    return True


def _begin(producer: Producer, complaints: Complaints) -> None:
    try:
        # In slices, so that a stop does not wait for an unavailable Kafka. After a timeout the next call continues the same request.
        producer.init_transactions(_SLICE_S)
    except KafkaException as error:
        if error.args[0].retriable():
            # Calls the error callback, which fills `complaints`; raises if librdkafka has failed fatally meanwhile.
            producer.poll(0)
            if (refusal := complaints.login_refused()) is not None:
                raise KafkaException(refusal) from error
        raise


def _unanswered(error: KafkaException, transactional_id: str) -> KafkaException:
    """Return the error with an explanation if librdkafka gives none: brokers answer, but not why no transaction begins."""
    told = error.args[0]
    if told.code() != KafkaError._TIMED_OUT:
        return error
    text = (
        f"Kafka does not begin transactions of {transactional_id}: the coordinator, a leader of __transaction_state, may be away "
        f"({told.str()})"
    )
    return KafkaException(KafkaError(told.code(), text, retriable=True))


def _timeout_refused(transaction_timeout_ms: int) -> StoppedError:
    return StoppedError(
        StopReason.TRANSACTIONS_REFUSED,
        f"[publisher] transaction_timeout_ms = {transaction_timeout_ms} is more than the brokers allow (their "
        "transaction.max.timeout.ms). Lower the setting (OUTBOX_PUBLISHER__TRANSACTION_TIMEOUT_MS) and start the publisher again, or raise "
        "the brokers' limit; the lane then continues by itself",
        retry=True,
    )


def _no_transaction_log(topics: Topics) -> StoppedError:
    return StoppedError(
        StopReason.TRANSACTIONS_REFUSED,
        "Kafka has no transaction log (__transaction_state) and cannot create it: it needs as many brokers as "
        f"transaction.state.log.replication.factor says (3 by default), and there are {topics.brokers()}. Start the missing brokers, or "
        "set transaction.state.log.replication.factor and transaction.state.log.min.isr on the brokers; the lane then continues by itself",
        retry=True,
    )
