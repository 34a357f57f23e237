"""One Kafka transaction of a replay: the rows' records, then its progress record, all or nothing."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from db.fault_points import reach
from publisher.outflow import Outflow
from publisher.records import SENT_NOW, Record, Row
from publisher.refusals import RECORD_ERRORS, Refusal

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
        self._outflow = Outflow(producer, stop)
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
            self._outflow.produce(self._place.topic, progress, self._place.key, self._place.partition)
            self._outflow.flush()
            reach("replay.before_commit")
            self._producer.commit_transaction()
            # What librdkafka logged during the commit (publisher/link.py) is served before the next transaction begins.
            self._producer.poll(0)
            reach("replay.after_commit")
        except KafkaException as error:
            # Once a transaction has failed, later calls complain about its state instead of the cause.
            cause = self._outflow.failure() or error.args[0]
            if cause.code() not in RECORD_ERRORS:
                raise KafkaException(cause) from error
            self._outflow.serve_reports()
            raise RefusedError(cause, self._refused) from error

    def _send(self, one: Prepared) -> None:
        for topic, value, key, partition, timestamp_ms, headers in one.records:
            report = self._report(one.place, timestamp_ms) if self._watched else None
            self._outflow.produce(topic, value, key, partition, report, None, timestamp_ms, headers)

    def _report(self, place: Place, timestamp_ms: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, _: Message) -> None:
            if error is None or error.code() not in RECORD_ERRORS:
                return
            # Without a time of its own it is this host's clock that Kafka refuses.
            if error.code() != KafkaError.INVALID_TIMESTAMP or timestamp_ms != SENT_NOW:
                refusal = Refusal(RECORD_ERRORS[error.code()], f"Kafka refused it: {error.str()}")
                self._refused.setdefault(place, refusal)

        return report
