"""One Kafka transaction of a replay: the rows' records, then its progress record, all or nothing."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from db.fault_points import reach
from publisher.records import SENT_NOW, Record, Row
from publisher.refusals import RECORD_ERRORS, Refusal
from publisher.transaction import transaction_failure

# How long a transaction in flight may still wait for Kafka once the replay is to stop.
_STOP_GRACE_S = 10.0
_QUEUE_FULL_WAIT_S = 0.05
_FLUSH_SLICE_S = 0.2
_REPORTS_WAIT_S = 5.0

Place = tuple[int, str]
"""(batch_id, session_key) of a row."""


class Prepared(NamedTuple):
    """A row and what goes out of it."""

    row: Row
    records: Sequence[Record]

    @property
    def place(self) -> Place:
        """Which row it is."""
        return self.row.batch_id, self.row.session_key


class ProgressPlace(NamedTuple):
    """Where the progress record goes."""

    topic: str
    partition: int
    key: bytes


class RefusedError(Exception):
    """Kafka refused a record for itself. `rows`: which and why; empty where that is not known."""

    def __init__(self, cause: KafkaError, rows: dict[Place, Refusal]) -> None:
        super().__init__(cause.str())
        self.rows = rows


class Sender:
    """Transactions on an initialised producer. The outcome is unknown after any exception: make another producer then."""

    def __init__(
        self, producer: Producer, place: ProgressPlace, stop: threading.Event, *, watched: bool
    ) -> None:
        """`watched`: the producer's batches hold one record, and each is watched, to find the one that is refused."""
        self._producer = producer
        self._place = place
        self._stop = stop
        self._watched = watched
        self._refused: dict[Place, Refusal] = {}

    def send(self, prepared: Sequence[Prepared], progress: bytes) -> None:
        """Produce and commit. Raises RefusedError, KafkaException."""
        try:
            self._producer.begin_transaction()
            reach("replay.after_begin")
            for one in prepared:
                reach("replay.during_produce")
                self._send(one)
            reach("replay.before_progress")
            # Last, so that whoever sees it sees every event before it.
            self._produce(self._place.topic, progress, self._place.key, self._place.partition)
            self._flush()
            reach("replay.before_commit")
            self._producer.commit_transaction()
            # What librdkafka logged during the commit (publisher/link.py) is served before the next transaction begins.
            self._producer.poll(0)
            reach("replay.after_commit")
        except KafkaException as error:
            # Once a transaction has failed, later calls complain about its state instead of the cause.
            cause = transaction_failure(self._producer) or error.args[0]
            if cause.code() not in RECORD_ERRORS:
                raise KafkaException(cause) from error
            # The report that names the row may still wait to be served.
            self._producer.purge()
            self._producer.flush(_REPORTS_WAIT_S)
            raise RefusedError(cause, self._refused) from error

    def _send(self, one: Prepared) -> None:
        for topic, value, key, partition, timestamp_ms, headers in one.records:
            report = self._report(one.place, timestamp_ms) if self._watched else None
            self._produce(topic, value, key, partition, report, None, timestamp_ms, headers)

    def _report(self, place: Place, timestamp_ms: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, _: Message) -> None:
            if error is None or error.code() not in RECORD_ERRORS:
                return
            # Without a time of its own it is this host's clock that Kafka refuses.
            if error.code() != KafkaError.INVALID_TIMESTAMP or timestamp_ms != SENT_NOW:
                refusal = Refusal(RECORD_ERRORS[error.code()], f"Kafka refused it: {error.str()}")
                self._refused.setdefault(place, refusal)

        return report

    def _produce(self, *record: Any) -> None:
        """Produce one record, in the order of `Producer.produce`, as soon as the queue has room for it."""
        while True:
            try:
                self._producer.produce(*record)
                return
            except BufferError:
                self._producer.poll(_QUEUE_FULL_WAIT_S)
                self._check()

    def _flush(self) -> None:
        stopped_at: float | None = None
        while self._producer.flush(_FLUSH_SLICE_S):
            self._check()
            if self._stop.is_set():
                stopped_at = stopped_at or time.monotonic()
                if time.monotonic() - stopped_at > _STOP_GRACE_S:
                    raise KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, "stopped while Kafka did not answer")
                    )

    def _check(self) -> None:
        """Raise as soon as the transaction has failed: records behind the failed one would be held back until they time out."""
        failure = transaction_failure(self._producer)
        if failure is not None:
            raise KafkaException(failure)
