"""Records into an open Kafka transaction and out of the client, given up as soon as the transaction has failed."""

import threading
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

# How long a transaction in flight may still wait for Kafka once its process is to stop.
_STOP_GRACE_S = 10.0
# How long to let librdkafka send before its full queue is tried again.
_QUEUE_FULL_WAIT_S = 0.05
_FLUSH_SLICE_S = 0.2
_REPORTS_WAIT_S = 5.0


class Outflow:
    """One transaction's. Every method raises KafkaException."""

    def __init__(self, producer: Producer, stop: threading.Event) -> None:
        """`stop`: the process is to end."""
        self._producer = producer
        self._stop = stop

    def produce(self, *record: Any) -> None:
        """Produce one record, in the order of `Producer.produce`, as soon as the queue has room for it."""
        while True:
            try:
                self._producer.produce(*record)
                return
            except BufferError:
                self.wait_for_room()

    def wait_for_room(self) -> None:
        """Let librdkafka send from its full queue. A failed transaction never empties it."""
        self._producer.poll(_QUEUE_FULL_WAIT_S)
        self._check()

    def flush(self) -> None:
        """Wait until everything is in Kafka."""
        stopped_at: float | None = None
        while self._producer.flush(_FLUSH_SLICE_S):
            self._check()
            if self._stop.is_set():
                stopped_at = stopped_at or time.monotonic()
                if time.monotonic() - stopped_at > _STOP_GRACE_S:
                    raise KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, "stopped while Kafka did not answer")
                    )

    def serve_reports(self) -> None:
        """After a failure: the report that names the refused row may still wait to be served."""
        self._producer.purge()
        self._producer.flush(_REPORTS_WAIT_S)

    def failure(self) -> KafkaError | None:
        """Return why the open transaction can no longer be committed, None while it can.

        librdkafka has no call that asks; one that is not allowed in an open transaction does nothing but answer
        (rd_kafka_txn_require_state): with the failure where there is one, else with "wrong state".
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            found: KafkaError = error.args[0]
            return found if found.txn_requires_abort() or found.fatal() else None
        return None

    def _check(self) -> None:
        """Records behind a failed one are held back until they time out; the failure itself is known now."""
        failure = self.failure()
        if failure is not None:
            raise KafkaException(failure)
