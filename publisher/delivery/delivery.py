"""The exactly-once protocol. Lanes, replays and the moves of `publisher resume` go through the same steps and differ in what each does."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import psycopg
import structlog
from confluent_kafka import KafkaException, Producer

from publisher.delivery.admission import Admission
from publisher.delivery.context import Context
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.delivery.transaction import OffsetTally, ProgressRecord, Transaction
from publisher.delivery.transaction_size import ONE_BY_ONE_EVENTS, RefusalBisection, TransactionSize
from publisher.kafka.coordinator_link import CoordinatorLink
from publisher.kafka.fencing import fencing_producer
from publisher.monitoring import metrics
from publisher.protocol.cursor import ChunkLimits
from publisher.protocol.history import DeliveryPosition
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, value_bytes
from publisher.protocol.refusals import RecordRefusedError
from publisher.protocol.stop_reasons import StartOverError
from service.kafka.renewable_client import Complaints
from service.lifecycle.fault_points import reach
from service.observability.loops import LifeSign, unwatched

_log = structlog.get_logger()

Connection = psycopg.Connection[Any]


class StepOutcome(Enum):
    """What `run_once` did."""

    DELIVERED = auto()
    CAUGHT_UP = auto()
    """Delivered, and there was nothing behind it when it was read."""
    IDLE = auto()
    DONE = auto()


class Rows(Protocol):
    """A chunk of the outbox."""

    @property
    def rows(self) -> list[Row]:
        """What it holds, in order."""

    @property
    def is_last(self) -> bool:
        """Whether there was nothing behind it when it was read, nor anything else left to do."""


Newest = TypeVar("Newest")
Chunk = TypeVar("Chunk", bound=Rows)


class Tenure(NamedTuple):
    """The connection and producer held from `open()` until the first exception."""

    connection: Connection
    producer: Producer


class Delivery(ABC, Generic[Newest, Chunk]):
    """Rows of the outbox into Kafka. Not thread-safe.

    `open`; and again after any exception, because the outcome is unknown then:
    1. acquire: the lease in Postgres, for liveness only;
    2. fence: `init_transactions` ends any older holder and its open transaction. Only then is Kafka's word final;
    3. read progress: the newest record, which the last committed transaction carried;
    4. check history: Postgres must tell the same. What a crash between the two commits left unrecorded is recorded.
    `run_once`, until the first exception:
    5. deliver: rows that are admitted, and the progress record last, in one Kafka transaction; the first one is committed only where its
       progress record follows the end that step 3 read;
    6. record: delivery and mirror in Postgres, always before the next transaction begins.
    """

    def __init__(
        self, context: Context, connection: OutboxConnection, outgoing: Outgoing, admission: Admission
    ) -> None:
        publisher = context.settings.publisher
        self._context = context
        self._connection = connection
        self._outgoing = outgoing
        self._admission = admission
        self._link, self._complaints = CoordinatorLink(), Complaints()
        self._bisection = RefusalBisection()
        self._tenure: Tenure | None = None
        self._transaction_timeout_ms = publisher.transaction_timeout_ms
        self.size = TransactionSize(
            publisher.transaction_sessions,
            publisher.transaction_bytes,
            publisher.transaction_timeout_ms / 1000,
        )
        self._progress_from: int | None = None
        """The end of the progress partition that this tenure's position was read from, until a write has proved it."""
        self.alive: LifeSign = unwatched
        """Called with each step of a transaction, and how long it may take."""
        self.position: DeliveryPosition | None = None
        """After the last transaction that was recorded, None while it is not open."""

    def open(self) -> bool:
        """Do steps 1 to 4. Returns False when another process holds it, or it is not its turn.

        Raises StoppedError, KafkaException, psycopg.Error, UnavailableError.
        """
        connection = self._connection.open()
        reach("delivery.before_lease")
        if not self._acquire(connection):
            return False
        reach("delivery.after_lease")
        self._prepare(connection)
        producer = self._fence()
        reach("delivery.after_fencing")
        newest = self._read_progress()
        reach("delivery.after_progress")
        position = self._check_history(connection, newest)
        if position is None:
            return False
        reach("delivery.after_check")
        if position.unrecorded:
            self._record_missing(connection, newest)
        reach("delivery.after_filling")
        self._tenure, self.position = Tenure(connection, producer), position
        self._begin(connection, position)
        return True

    def run_once(self) -> StepOutcome:
        """Do steps 5 and 6 for the next chunk. Raises as `open`, and LeaseLostError, StartOverError."""
        if self._tenure is None:
            raise RuntimeError("rows are delivered only after open")
        try:
            self.alive(doing="reads its next rows")
            chunk = self._next_chunk(self._tenure.connection)
            if isinstance(chunk, StepOutcome):
                return chunk
            reach("delivery.after_read")
            self.alive(doing="asks Kafka about its topics")
            rows = self._admission.admit(chunk.rows)
            reach("delivery.after_admission")
            # A connection that was closed while nothing was under way, as a broker does with idle ones, can have repeated no commit.
            self._tenure.producer.poll(0)
            self._link.forget()
            if (refusal := self._complaints.login_refused()) is not None:
                raise KafkaException(refusal)
            self._deliver(self._tenure, chunk, rows)
        except RecordRefusedError as error:
            self._search(error)
            raise StartOverError from error
        except KafkaException:
            self._bisection.failed()
            raise
        if self._bisection.on:
            self._bisection.delivered()
            raise StartOverError
        if self._link.has_broken:
            metrics.link_broke()
            # Its commit may have been sent twice, and the first one arrive yet: a new epoch makes it void.
            raise StartOverError
        return StepOutcome.CAUGHT_UP if chunk.is_last else StepOutcome.DELIVERED

    def discard(self) -> None:
        """Close the producer, whatever it was doing; the next `open` reads the outcome."""
        if self._tenure is not None:
            tenure, self._tenure, self.position = self._tenure, None, None
            tenure.producer.purge()
        self._connection.discard()

    @property
    def producer(self) -> Producer | None:
        """The one of this tenure, None while it is not open."""
        return None if self._tenure is None else self._tenure.producer

    @property
    def limits(self) -> ChunkLimits:
        """How much the next transaction may carry."""
        one_by_one = self._bisection.one_by_one
        rows = self.size.rows if self._bisection.rows is None else min(self.size.rows, self._bisection.rows)
        # Record by record Kafka takes some hundreds a second, and a transaction must not outlast its timeout.
        return ChunkLimits(rows, self.size.bytes, events=ONE_BY_ONE_EVENTS if one_by_one else None)

    # What each step is for a lane, a replay, a resume:

    @property
    @abstractmethod
    def _transactional_id(self) -> str: ...

    @abstractmethod
    def _acquire(self, connection: Connection) -> bool:
        """Take the lease. Returns False where another has it."""

    def _prepare(self, connection: Connection) -> None:
        """Before it fences anybody: is this the right cluster, and is the progress topic there?"""

    @abstractmethod
    def _read_progress(self) -> Newest: ...

    @abstractmethod
    def _check_history(self, connection: Connection, newest: Newest) -> DeliveryPosition | None:
        """Return where to continue, None where it is not its turn. Raises StoppedError."""

    @abstractmethod
    def _record_missing(self, connection: Connection, newest: Newest) -> None: ...

    def _begin(self, connection: Connection, position: DeliveryPosition) -> None:
        """It is open."""

    def _is_foreign(self, start: int, end: int) -> bool:
        """Whether others have written all records of the progress partition from `start` up to `end`. Nobody else writes to a lane's."""
        return False

    @abstractmethod
    def _next_chunk(self, connection: Connection) -> Chunk | StepOutcome: ...

    @abstractmethod
    def _progress(self, chunk: Chunk, rows: list[Row]) -> Sequence[ProgressRecord]:
        """Return the records that end the transaction: what it does when `rows` of the chunk go out."""

    def _meanwhile(self, connection: Connection) -> None:
        """Everything is handed to the client, and Kafka's commit is about to be waited for. Must not wait itself."""

    @abstractmethod
    def _record(self, connection: Connection, tally: OffsetTally) -> None:
        """Write what `_progress` said last to Postgres, and move `position` there."""

    @abstractmethod
    def _refused_by_nobody(self, error: RecordRefusedError) -> Exception:
        """Return what to raise when Kafka refuses a record, but none of the rows is to blame."""

    def _open_position(self) -> DeliveryPosition:
        if self.position is None:
            raise RuntimeError("rows are delivered only after open")
        return self.position

    def _fence(self) -> Producer:
        context = self._context
        self._link, self._complaints = CoordinatorLink(), Complaints()
        producer = fencing_producer(
            context.settings.kafka,
            context.topics,
            self._transactional_id,
            self._transaction_timeout_ms,
            1 if self._bisection.one_by_one else self._admission.batch_bytes,
            context.give_up,
            self._link.logger,
            self._complaints,
        )
        producer.poll(0)  # serves the log
        self._link.forget()
        return producer

    def _deliver(self, tenure: Tenure, chunk: Chunk, rows: list[Row]) -> None:
        progress = self._progress(chunk, rows)
        transaction = Transaction(
            tenure.producer,
            self._outgoing,
            self._context.stop,
            self._context.turns,
            name=self._connection.name,
            alive=self.alive,
            timeout_s=self._transaction_timeout_ms / 1000,
            progress_from=self._progress_from,
            is_foreign=self._is_foreign,
            one_by_one=self._bisection.one_by_one,
            complaints=self._complaints,
        )
        try:
            with metrics.transaction(rows, lambda: transaction.took_s):
                transaction.run(rows, progress, lambda: self._meanwhile(tenure.connection))
        except KafkaException as error:
            self.size.failed(len(rows), sum(map(value_bytes, rows)), f"Kafka: {error.args[0].str()}")
            raise
        finally:
            self._context.topics.written.take(transaction.tally.newest())
        self._progress_from = None
        self.size.committed(transaction.took_s)
        self.alive(doing="records its delivery")
        self._record(tenure.connection, transaction.tally)
        reach("delivery.after_record")

    def _search(self, error: RecordRefusedError) -> None:
        """Put aside what Kafka refused, or find out what it was with smaller transactions."""
        if not self._bisection.one_by_one:
            if not self._bisection.on:
                _log.info("refused_record_search", rows=error.sent, reason=str(error))
            self._bisection.refused(error.sent)
            return
        if not error.rows:
            raise self._refused_by_nobody(error)
        for place, found in error.rows.items():
            self._admission.put_aside(place, found)
