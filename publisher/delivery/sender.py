"""Fences with the producer of a lane, a replay or a move, then sends one transaction after another (steps 2 and 5 of the protocol)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, NamedTuple

import psycopg
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from publisher.delivery.context import Context
from publisher.delivery.refusal_bisection import ONE_BY_ONE_EVENTS, RefusalBisection
from publisher.delivery.transaction import OffsetTally, ProgressRecord, Transaction
from publisher.delivery.transaction_size import TransactionSize, size_may_explain
from publisher.kafka.clients import discard_producer
from publisher.kafka.coordinator_link import CoordinatorLink
from publisher.kafka.fencing import end_transaction, fencing_producer
from publisher.monitoring import metrics
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, RowKey, value_bytes
from publisher.protocol.refusals import RecordRefusedError, Refusal
from publisher.protocol.stop_reasons import StartOverError
from service.kafka.renewable_client import Complaints
from service.observability.loops import LifeSign, unwatched

_log = structlog.get_logger()

Connection = psycopg.Connection[Any]


class StepOutcome(Enum):
    """The result of `run_once`."""

    DELIVERED = auto()
    CAUGHT_UP = auto()
    """Delivered, and the ledger had no more rows when the chunk was read."""
    IDLE = auto()
    DONE = auto()


class Tenure(NamedTuple):
    """The connection and position that are held, beside the producer, from `open` until the first exception.

    `position`: the position after the last recorded transaction.
    """

    connection: Connection
    position: DeliveryPosition


class Sender:
    """Sends rows with their progress record. Not thread-safe. After any exception of `send`, call `discard`, then `fence` again."""

    def __init__(
        self, context: Context, outgoing: Outgoing, name: str, size: TransactionSize, timeout_ms: int
    ) -> None:
        """`name`: the lane, replay or command, for operators. `timeout_ms`: the timeout of a transaction."""
        self._context = context
        self._outgoing = outgoing
        self._name = name
        self._timeout_ms = timeout_ms
        self._link, self._complaints = CoordinatorLink(), Complaints()
        self._bisection = RefusalBisection()
        self._may_be_open = False
        """Whether a `send` has failed since the last fencing."""
        self._unproved_end: int | None = None
        """The end of the progress partition when the position was read, None once a write has proved that end."""
        self.size = size
        self.producer: Producer | None = None
        """The fenced producer, None before `fence` and after `discard`."""

    @property
    def limits(self) -> ChunkLimits:
        """How much the next transaction may carry."""
        one_by_one = self._bisection.one_by_one
        rows = self.size.rows if self._bisection.rows is None else min(self.size.rows, self._bisection.rows)
        # Record by record, Kafka accepts only some hundreds a second, and a transaction must not outlast its timeout.
        return ChunkLimits(rows, self.size.bytes, events=ONE_BY_ONE_EVENTS if one_by_one else None)

    @property
    def searches(self) -> bool:
        """Whether the search for a row that Kafka refuses is under way."""
        return self._bisection.on

    def fence(self, transactional_id: str, batch_bytes: int) -> None:
        """Step 2. `batch_bytes`: the size of the producer's batches. Raises StoppedError, KafkaException."""
        context = self._context
        self._link, self._complaints = CoordinatorLink(), Complaints()
        self.producer = fencing_producer(
            context.settings.kafka,
            context.topics,
            transactional_id,
            self._timeout_ms,
            1 if self._bisection.one_by_one else batch_bytes,
            context.give_up,
            self._link.logger,
            self._complaints,
        )
        self._forget_breaks(self.producer)
        self._may_be_open = False

    def begin(self, partition: int) -> None:
        """Note, after step 4, the end that the first `send` must prove. `partition`: the progress partition in which it was read."""
        context = self._context
        self._unproved_end = context.topics.written.last_read(context.progress_topic, partition)

    def send(
        self,
        rows: list[Row],
        progress: Sequence[ProgressRecord],
        *,
        alive: LifeSign = unwatched,
        meanwhile: Callable[[], None] = lambda: None,
        confirm: Callable[[], None] = lambda: None,
        is_foreign: Callable[[int, int], bool] = lambda _start, _end: False,
    ) -> OffsetTally:
        """Step 5: rows and progress in one transaction. Returns the offsets of the records once Kafka has committed it.

        `alive` is called with each step and its time limit. `meanwhile` is called after the last record was handed to the client, before
        the wait for Kafka, and must not wait itself. `confirm` is called right before the commit; if it raises, nothing is committed.
        `is_foreign` returns whether others have written all records of the progress partition between two offsets. By default it returns
        False, because nobody else writes to a lane's partition.
        Raises RecordRefusedError, KafkaException, HandoverStuckError, and what `meanwhile` and `confirm` raise.
        """
        if self.producer is None:
            raise RuntimeError("rows are sent only after the fencing")
        # If the connection broke while no transaction ran (brokers close idle connections), no commit can have been sent twice.
        self._forget_breaks(self.producer)
        if (refusal := self._complaints.login_refused()) is not None:
            raise KafkaException(refusal)
        self._complaints.forget()
        transaction = Transaction(
            self.producer,
            self._outgoing,
            self._context.stop,
            self._context.turns,
            name=self._name,
            alive=alive,
            timeout_s=self._timeout_ms / 1000,
            progress_from=self._unproved_end,
            is_foreign=is_foreign,
            one_by_one=self._bisection.one_by_one,
            complaints=self._complaints,
        )
        self._may_be_open = True
        self._run(transaction, rows, progress, meanwhile, confirm)
        self._may_be_open = False
        self._unproved_end = None
        self.size.committed(transaction.took_s)
        return transaction.tally

    @contextmanager
    def finding_refused(
        self,
        exclude: Callable[[RowKey, Refusal], None],
        nobody: Callable[[RecordRefusedError], Exception],
    ) -> Iterator[None]:
        """Call `send` in this block. If Kafka refuses a record, the next transactions are smaller until the row is found.

        `exclude` is called with that row. If Kafka refuses a record but no row is to blame, `nobody` returns the error to raise.
        Raises StartOverError after each refusal.
        """
        try:
            yield
        except RecordRefusedError as error:
            self._search(error, exclude, nobody)
            raise StartOverError from error

    def check(self) -> None:
        """Call once a transaction is recorded. Raises StartOverError if the next one needs another producer."""
        if self._bisection.on:
            self._bisection.delivered()
            raise StartOverError
        if self._link.has_broken:
            metrics.link_broke()
            # Its commit may have been sent twice, and the first request may still arrive. A new producer epoch makes that request void.
            raise StartOverError

    def discard(self) -> None:
        """Close the producer, whatever it is doing. Its transaction ends with the next fencing at the latest."""
        producer, self.producer = self.producer, None
        if producer is not None:
            discard_producer(producer)

    def end(self, transactional_id: str) -> bool:
        """Do what `discard` does, for a caller that does not fence again: also end a transaction that a failed `send` may have left open.

        `transactional_id`: as in the last fencing. Return whether it is certain that no `send` can be committed any more.
        """
        self.discard()
        if not self._may_be_open:
            return True
        self._may_be_open = False
        context = self._context
        return end_transaction(context.settings.kafka, context.topics, transactional_id, self._timeout_ms)

    def _forget_breaks(self, producer: Producer) -> None:
        producer.poll(0)  # delivers the log
        self._link.forget()

    def _run(
        self,
        transaction: Transaction,
        rows: list[Row],
        progress: Sequence[ProgressRecord],
        meanwhile: Callable[[], None],
        confirm: Callable[[], None],
    ) -> None:
        try:
            with metrics.transaction(rows, lambda: transaction.took_s):
                transaction.run(rows, progress, meanwhile, confirm)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            nothing_sent = self._complaints.cannot_connect and not transaction.tally.newest()
            if (
                size_may_explain(cause.code(), transaction.took_s, self._timeout_ms / 1000)
                and not nothing_sent
            ):
                self.size.failed(len(rows), sum(map(value_bytes, rows)), f"Kafka: {cause.str()}")
                self._bisection.failed()
            raise
        finally:
            self._context.topics.written.take(transaction.tally.newest())

    def _search(
        self,
        error: RecordRefusedError,
        exclude: Callable[[RowKey, Refusal], None],
        nobody: Callable[[RecordRefusedError], Exception],
    ) -> None:
        """Exclude the rows that Kafka named, or let smaller transactions find them."""
        if not self._bisection.one_by_one:
            if not self._bisection.on:
                _log.info("refused_record_search", rows=error.sent, reason=str(error))
            self._bisection.refused(error.sent)
            return
        if not error.rows:
            raise nobody(error)
        for row, refusal in error.rows.items():
            exclude(row, refusal)
