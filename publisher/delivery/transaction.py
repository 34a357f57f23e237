"""Sends one Kafka transaction: the records of every row, then the progress record, all or nothing."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from publisher.delivery.handover import HandoverTurns
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import SENT_NOW, DeliveryReport, Row, RowKey
from publisher.protocol.refusals import RECORD_ERRORS, RecordRefusedError, Refusal
from service.kafka.renewable_client import Complaints
from service.kafka.rights import needing
from service.lifecycle.fault_points import reach
from service.observability.loops import LifeSign, unwatched

# How long a transaction in flight may wait for Kafka after its process was told to stop.
_STOP_GRACE_S = 10.0
# How long librdkafka may send before its full queue is tried again.
_QUEUE_FULL_WAIT_S = 0.05
_FLUSH_SLICE_S = 0.2
# The turn reports progress after this many rows, or this many records of one long row.
_ROWS_A_MOVE = 64
_RECORDS_A_MOVE = 256
_REPORTS_WAIT_S = 5.0
_LEAST_COMMIT_S = 1.0
COMMIT_SLACK_S = 10.0
"""A transaction that Kafka does not commit within its timeout fails. A lane that waits this many seconds beyond it hangs."""


class ProgressRecord(NamedTuple):
    """A record of a progress topic, in the order of `Producer.produce`. `value`: None for a tombstone, which deletes the key."""

    topic: str
    value: bytes | None
    key: bytes
    partition: int


class OffsetTally:
    """First and last Kafka offset of a transaction in each topic partition, collected from delivery reports."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], list[int]] = {}
        self._progress: dict[tuple[str, int], list[int]] = {}
        self.refused: dict[RowKey, Refusal] = {}
        """The rows that Kafka refused. Only the callbacks of `watch` fill it."""

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take a delivery report."""
        if error is not None:
            return  # the commit then fails with this error
        # The report of a stored record has its topic, partition and offset.
        partition: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
        offset: int = message.offset()  # type: ignore[assignment]
        bounds = self._offsets.get(partition)
        if bounds is None:
            self._offsets[partition] = [offset, offset]
        elif offset < bounds[0]:
            bounds[0] = offset
        elif offset > bounds[1]:
            bounds[1] = offset

    def report_progress(self, error: KafkaError | None, message: Message) -> None:
        """Take the delivery report of a progress record."""
        if error is None:
            partition: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
            offset: int = message.offset()  # type: ignore[assignment]
            self._progress.setdefault(partition, []).append(offset)

    def progress_from(self, record: ProgressRecord) -> int | None:
        """Return the offset of the first progress record in this record's partition, None until Kafka has confirmed one."""
        return min(self._progress.get((record.topic, record.partition), []), default=None)

    def watch(self, row: RowKey, *, own_timestamp: bool) -> DeliveryReport:
        """Return a delivery report callback that also remembers the row if Kafka refuses the record for its own content.

        `own_timestamp`: whether the row gives the record's time. If not, a refused time is this host's clock's fault.
        """

        def report(error: KafkaError | None, message: Message) -> None:
            clock = error is not None and error.code() == KafkaError.INVALID_TIMESTAMP and not own_timestamp
            if error is not None and error.code() in RECORD_ERRORS and not clock:
                found = Refusal(RECORD_ERRORS[error.code()], f"Kafka refused it: {error.str()}")
                self.refused.setdefault(row, found)
            self.report(error, message)

        return report

    def newest(self) -> dict[tuple[str, int], int]:
        """Return the greatest offset that Kafka has confirmed in each partition, also in the progress topic."""
        outputs = {partition: bounds[1] for partition, bounds in self._offsets.items()}
        return outputs | {partition: max(offsets) for partition, offsets in self._progress.items()}

    def as_json(self) -> dict[str, dict[str, list[int]]]:
        """Return {topic: {partition: [first, last]}}."""
        found: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), bounds in sorted(self._offsets.items()):
            found.setdefault(topic, {})[str(partition)] = bounds
        return found


class Transaction:
    """A transaction on an initialised producer. After any exception its outcome is unknown: discard the producer then."""

    def __init__(
        self,
        producer: Producer,
        outgoing: Outgoing,
        stop: threading.Event,
        turns: HandoverTurns,
        *,
        name: str = "",
        alive: LifeSign = unwatched,
        timeout_s: float = 60.0,
        progress_from: int | None = None,
        is_foreign: Callable[[int, int], bool] = lambda _start, _end: False,
        one_by_one: bool = False,
        complaints: Complaints | None = None,
    ) -> None:
        """`stop`: set when the process is to end. `turns`: the turns of the process; `name` names this lane or replay in them. `alive` is
        called with each step. `timeout_s`: the producer's transaction.timeout.ms. `progress_from`: the end of the progress partition when
        the position was read, None if a write has proved that end. `is_foreign` returns whether others have written all records from there
        up to an offset. `one_by_one`: each batch of the producer holds one record, and each record is watched, to find the refused one.
        `complaints`: the connection errors of the producer.
        """
        self._producer = producer
        self._outgoing = outgoing
        self._stop = stop
        self._turns = turns
        self._name = name
        self._alive = alive
        self._timeout_s = timeout_s
        self._progress_from = progress_from
        self._is_foreign = is_foreign
        self._one_by_one = one_by_one
        self._complaints = complaints or Complaints()
        self._has_turn = False
        self._waited_s = 0.0
        self._began_at = 0.0
        self.tally = OffsetTally()

    @property
    def took_s(self) -> float:
        """Seconds since the transaction began, without its waits for a turn."""
        return time.monotonic() - self._began_at - self._waited_s

    def run(
        self,
        rows: Sequence[Row],
        progress: Sequence[ProgressRecord],
        meanwhile: Callable[[], None] = lambda: None,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """Produce and commit. `meanwhile` is called before the wait for Kafka begins, and must not wait itself. `confirm` is called right
        before the commit.

        Raises RecordRefusedError, KafkaException, HandoverStuckError, and what `meanwhile` and `confirm` raise.
        """
        producer = self._producer
        self._began_at = time.monotonic()
        # Before the transaction begins, so that waiting for a turn does not hold up readers.
        self._take_turn()
        try:
            try:
                producer.begin_transaction()
                reach("transaction.after_begin")
                for number, row in enumerate(rows, 1):
                    reach("transaction.during_produce")
                    if not self._one_by_one and self._outgoing.is_plain(row):
                        self._send_plain(row)
                    else:
                        self._send(row)
                    if number % _ROWS_A_MOVE == 0:
                        self._turns.move(self._alive)
                reach("transaction.before_progress")
                # Last, so that a reader of the progress record can see every event of the transaction before it.
                for record in progress:
                    self._produce(*record, self.tally.report_progress)
            finally:
                self._end_turn()
            self._alive(self._timeout_s + COMMIT_SLACK_S, "waits for Kafka's commit")
            reach("transaction.before_flush")
            meanwhile()
            self._flush()
            self._check_end(progress)
            reach("transaction.before_commit")
            confirm()
            # Without a timeout librdkafka would wait for ever. The coordinator ends a transaction that outlasts its timeout, whatever
            # happens to the request.
            producer.commit_transaction(max(_LEAST_COMMIT_S, self._timeout_s - self.took_s))
            # Delivers what librdkafka logged during the commit (publisher/kafka/coordinator_link.py) before the next transaction begins.
            producer.poll(0)
            reach("transaction.after_commit")
        except KafkaException as error:
            # Once a transaction has failed, later calls report its state instead of the cause.
            cause = self._failure() or self._complaints.login_refused() or error.args[0]
            if cause.code() not in RECORD_ERRORS:
                topics = self._outgoing.destinations(rows) | {record.topic for record in progress}
                with needing("Write", "topic", *sorted(topics)):
                    raise KafkaException(cause) from error
            # The report that names the refused row may not be delivered yet.
            producer.purge()
            producer.flush(_REPORTS_WAIT_S)
            raise RecordRefusedError(cause, self.tally.refused, len(rows)) from error

    def _send_plain(self, row: Row) -> None:
        reached = [0]
        while True:
            try:
                self._outgoing.produce_plain(
                    self._producer.produce, row, reached[0], reached, self.tally.report
                )
                return
            except BufferError:
                self._wait_for_room()

    def _send(self, row: Row) -> None:
        report: DeliveryReport = self.tally.report
        row_key = row.row_key
        for number, record in enumerate(self._outgoing.records(row), 1):
            topic, value, key, partition, timestamp_ms, headers = record
            if self._one_by_one:
                report = self.tally.watch(row_key, own_timestamp=timestamp_ms != SENT_NOW)
            self._produce(topic, value, key, partition, report, None, timestamp_ms, headers)
            if number % _RECORDS_A_MOVE == 0:
                self._turns.move(self._alive)

    def _produce(self, *record: Any) -> None:
        """Produce one record, with the arguments of `Producer.produce`, as soon as the queue has room."""
        while True:
            try:
                self._producer.produce(*record)
                return
            except BufferError:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Let librdkafka send from its full queue, and other lanes have their turn. Raises if the transaction has failed, because its queue
        would never empty."""
        self._end_turn()
        self._producer.poll(_QUEUE_FULL_WAIT_S)
        self._check()
        self._take_turn()

    def _take_turn(self) -> None:
        self._waited_s += self._turns.take(self._name, self._alive)
        self._has_turn = True

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.end()

    def _flush(self) -> None:
        """Wait until Kafka has confirmed every record."""
        stopped_at: float | None = None
        while self._producer.flush(_FLUSH_SLICE_S):
            self._check()
            if self._stop.is_set():
                stopped_at = stopped_at or time.monotonic()
                if time.monotonic() - stopped_at > _STOP_GRACE_S:
                    raise KafkaException(
                        KafkaError(KafkaError._TIMED_OUT, "stopped while Kafka did not answer")
                    )

    def _check_end(self, progress: Sequence[ProgressRecord]) -> None:
        """Raise unless the progress record is at the offset at which its partition ended when the position was read.

        Records in between may belong to a transaction that this one repeats, unless others have written all of them.
        """
        wanted = self._progress_from
        if wanted is None:
            return
        found = self.tally.progress_from(progress[-1])
        if found != wanted and not (found is not None and found > wanted and self._is_foreign(wanted, found)):
            text = (
                f"the progress record got offset {found}, but the end of its partition was read as {wanted}: an old leader may have "
                "answered, so the position is read again"
            )
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))

    def _check(self) -> None:
        """Raise as soon as the transaction has failed: librdkafka holds records back after a failed one until they time out."""
        failure = self._complaints.login_refused() or self._failure()
        if failure is not None:
            raise KafkaException(failure)

    def _failure(self) -> KafkaError | None:
        """Return why the open transaction can no longer be committed, None if it can.

        librdkafka has no call for this. A call that an open transaction does not allow has no effect but its answer
        (rd_kafka_txn_require_state): the failure if there is one, else "wrong state".
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            found: KafkaError = error.args[0]
            return found if found.txn_requires_abort() or found.fatal() else None
        return None
