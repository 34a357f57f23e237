"""One lane: the unit of order. `open` takes it over from whoever had it, `run_once` does one Kafka transaction."""

import time
from enum import Enum, auto
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from db.connection import connect
from db.fault_points import reach
from db.statements import statement
from publisher import clients
from publisher.admission import Admission
from publisher.checks import LaneStoppedError, Mirror, Position, Why, check_parked, decide
from publisher.cursor import ChunkLimits, Cursor
from publisher.deliveries import Tally, commit_id_at, parked_within, record_delivery
from publisher.identity import check_cluster, check_unchanged
from publisher.lease import Lease, LeaseLostError
from publisher.progress import Progress, progress_key
from publisher.progress_reader import read_progress
from publisher.reader import Chunk, Reader
from publisher.records import Row
from publisher.refusals import no_row_s_fault
from publisher.shared import Epoch, Shared, StartOverError
from publisher.transaction import RecordRefusedError, Transaction

_log = structlog.get_logger()


class Outcome(Enum):
    """What `run_once` did."""

    DELIVERED = auto()
    IDLE = auto()
    EPOCH_DONE = auto()


class Lane:
    """One lane of an epoch. Not thread-safe: one thread works on it."""

    def __init__(self, shared: Shared, epoch: Epoch, lane: int) -> None:
        publisher = shared.settings.publisher
        self._shared = shared
        self._epoch = epoch
        self.lane = lane
        self._reader = Reader(
            epoch.epoch, lane, ChunkLimits(publisher.transaction_sessions, publisher.transaction_bytes)
        )
        self._connection: psycopg.Connection[Any] | None = None
        self._lease: Lease | None = None
        self._producer: Producer | None = None
        self._position: Position | None = None
        self._admission = Admission(shared.settings, shared.topics)
        self._one_by_one = False
        self._renewed_at = 0.0
        self._progressed_at = 0.0

    @property
    def position(self) -> Position | None:
        """Where the lane is, None while it is not open."""
        return self._position

    def open(self) -> bool:
        """Take the lane over, steps 1 to 4 of the protocol. Returns False when another publisher holds it.

        Raises LaneStoppedError, KafkaException, psycopg.Error, UnavailableError.
        """
        settings = self._shared.settings
        # 1. The lease, for liveness only.
        self._lease = None
        connection = self._connect()
        # A new connection may lead elsewhere: nothing is written before it is known to be the same outbox.
        found = check_unchanged(connection, self._shared.outbox)
        self._shared.timelines.notice(found.server_timeline)
        reach("lane.before_lease")
        self._lease = Lease.claim(
            connection, self._epoch.epoch, self.lane, self._shared.holder, settings.publisher.lease_s
        )
        if self._lease is None:
            return False
        self._renewed_at = time.monotonic()
        reach("lane.after_lease")
        # 2. Fence any older holder and end its open transaction. Only then is Kafka's word final.
        self._prepare_topic(connection)
        self._producer = self._init_producer()
        reach("lane.after_fencing")
        # 3. and 4. What Kafka says, and whether Postgres tells the same history.
        record = self._read_progress()
        reach("lane.after_progress")
        self._position = self._decide(connection, record)
        reach("lane.after_check")
        unrecorded = self._position.unrecorded
        if unrecorded is not None:
            check_parked(unrecorded, parked_within(connection, self._lease, unrecorded))
            record_delivery(connection, self._lease, unrecorded, unrecorded.after, None)
        reach("lane.after_filling")
        self._admission.begin(connection, self._lease, self._position.cursor)
        self._set_stopped(connection, None)
        return True

    def run_once(self) -> Outcome:
        """Step 5: read, produce, commit, record. Raises as `open`, and LeaseLostError, StartOverError.

        After any exception the outcome is unknown: call `discard` and begin again with `open`.
        """
        connection, position = self._opened()
        chunk = self._reader.read(connection, position)
        if chunk.end == position.cursor or not self._worth_a_transaction(chunk):
            self._renew(connection)
            return Outcome.EPOCH_DONE if chunk.ends_epoch() and chunk.end == position.cursor else Outcome.IDLE
        reach("lane.after_read")
        rows = self._admission.admit(connection, self._held(), chunk.rows)
        reach("lane.after_admission")
        progress, tally = self._deliver(rows, chunk, position)
        record_delivery(connection, self._held(), progress, position.cursor, tally)
        reach("lane.after_delivery")
        self._position = Position(progress.seq, progress.cursor, progress.commit_id)
        self._renewed_at = self._progressed_at = time.monotonic()
        _log.debug(
            "delivered",
            lane=self.lane,
            seq=progress.seq,
            batch_id=progress.cursor.batch_id,
            sessions=progress.sessions,
            events=progress.events,
        )
        if self._one_by_one:
            # What Kafka refused before, it took now: full batches again.
            self._one_by_one = False
            raise StartOverError
        return Outcome.DELIVERED

    def confirm(self) -> None:
        """Raise LeaseLostError when the lane is another's by now: what was found wrong with it may be that one's doing."""
        if self._lease is not None:
            self._lease.renew(self._connect())

    def stopped(self, reason: str) -> None:
        """Show the reason in `outbox.lane`, if Postgres can be reached and the lane is ours."""
        if self._lease is not None:
            self._set_stopped(self._connect(), reason)

    def discard(self) -> None:
        """Throw the producer away, whatever it was doing; the next `open` finds out what came of it."""
        self._position = None
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.purge()
        if self._connection is not None and (
            self._connection.closed
            or self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
        ):
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Give the lease back and disconnect. The lane can be opened again."""
        self.discard()
        if self._connection is not None:
            with self._connection as connection:
                if self._lease is not None:
                    self._lease.release(connection)
            self._connection = None
        self._lease = None

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self._shared.settings.postgres,
                f"publisher lane {self._epoch.epoch}/{self.lane}",
                autocommit=True,
            )
        return self._connection

    def _prepare_topic(self, connection: psycopg.Connection[Any]) -> None:
        publisher = self._shared.settings.publisher
        check_cluster(self._shared.identity.cluster_id, self._shared.topics.cluster_id())
        any_progress = connection.execute(statement("publisher", "any_progress")).fetchone()
        self._shared.topics.ensure_progress(
            self._shared.progress_topic,
            self._epoch.lanes,
            publisher.progress_replication,
            create=any_progress is not None and not any_progress[0],
        )

    def _init_producer(self) -> Producer:
        settings = self._shared.settings
        producer = clients.lane_producer(
            settings.kafka,
            f"{settings.publisher.transactional_id_prefix}-{self._shared.identity.outbox_uuid}"
            f"-{self._epoch.epoch}-{self.lane}",
            settings.publisher.transaction_timeout_ms,
            1 if self._one_by_one else self._admission.batch_bytes,
        )
        deadline = time.monotonic() + settings.kafka.request_timeout_s
        while True:
            try:
                # In slices, so that a stop does not wait for a Kafka that is away; a timed out call is taken up again.
                producer.init_transactions(1.0)
                return producer
            except KafkaException as error:
                again = error.args[0].code() == KafkaError._TIMED_OUT and error.args[0].retriable()
                if not again or self._shared.stop.is_set() or time.monotonic() > deadline:
                    raise

    def _read_progress(self) -> Progress | None:
        topic = self._shared.progress_topic
        high_watermark = self._shared.topics.high_watermark(topic, self.lane)
        consumer = clients.progress_consumer(self._shared.settings.kafka)
        try:
            return read_progress(
                consumer,
                topic,
                self.lane,
                progress_key(self._epoch.epoch, self.lane),
                high_watermark,
                self._shared.settings.kafka.request_timeout_s,
                self._shared.stop.is_set,
            )
        except ValueError as error:
            raise LaneStoppedError(
                Why.OTHER_OUTBOX,
                f"{topic}[{self.lane}]: {error}. Something else writes to this progress topic, or a newer publisher did; "
                "use that version, or name another [publisher] progress_topic before the first start",
            ) from error
        finally:
            consumer.close()

    def _decide(self, connection: psycopg.Connection[Any], record: Progress | None) -> Position:
        row = connection.execute(statement("publisher", "lane_state"), self._held().parameters).fetchone()
        if row is None:
            raise LeaseLostError(
                f"lane {self.lane} of epoch {self._epoch.epoch} was taken over by another publisher"
            )
        mirror = Mirror(row[0], Cursor(row[1], row[2]), row[3])
        first = Cursor(self._epoch.from_batch - 1)
        at = (record.cursor if record is not None else first).batch_id
        commit_id = commit_id_at(connection, at)
        start = Position(0, first, commit_id)
        return decide(self._shared.identity, record, mirror, start, commit_id)

    def _worth_a_transaction(self, chunk: Chunk) -> bool:
        due = self._progressed_at + self._shared.settings.publisher.idle_progress_s
        return bool(chunk.rows) or chunk.more or chunk.ends_epoch() or time.monotonic() >= due

    def _renew(self, connection: psycopg.Connection[Any]) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= self._shared.settings.publisher.lease_s / 3:
            self._held().renew(connection)
            self._renewed_at = now

    def _deliver(self, rows: list[Row], chunk: Chunk, position: Position) -> tuple[Progress, Tally]:
        producer = self._producer
        if producer is None or chunk.commit_id is None:
            raise RuntimeError("a lane delivers only after open, and only what the ledger has")
        shared = self._shared
        progress = Progress(
            outbox_uuid=shared.identity.outbox_uuid,
            cluster_id=shared.identity.cluster_id,
            epoch=self._epoch.epoch,
            lane=self.lane,
            seq=position.seq + 1,
            after=position.cursor,
            cursor=chunk.end,
            commit_id=chunk.commit_id,
            sessions=sum([len(row.session_ends) for row in rows]),
            events=sum([len(row.topics) for row in rows]),
            parked=len(chunk.rows) - len(rows),
        )
        headers = shared.settings.publisher.headers
        transaction = Transaction(producer, headers, shared.stop, one_by_one=self._one_by_one)
        try:
            transaction.run(rows, shared.progress_topic, progress)
        except RecordRefusedError as error:
            self._put_aside(error)
            raise StartOverError from error
        return progress, transaction.tally

    def _put_aside(self, error: RecordRefusedError) -> None:
        """Park what Kafka refused, or have the next transaction sent record by record to find out what it was."""
        if not self._one_by_one:
            self._one_by_one = True
            return
        if not error.rows:
            raise LaneStoppedError(
                Why.RECORD_REFUSED,
                no_row_s_fault(error.code, str(error), self._shared.progress_topic),
                retry=True,
            )
        for (batch_id, session_key), found in error.rows.items():
            self._admission.park(self._connect(), self._held(), batch_id, session_key, found)
        self._one_by_one = False

    def _set_stopped(self, connection: psycopg.Connection[Any], reason: str | None) -> None:
        connection.execute(
            statement("publisher", "set_stopped"), self._held().parameters | {"reason": reason}
        )

    def _opened(self) -> tuple[psycopg.Connection[Any], Position]:
        if self._connection is None or self._position is None:
            raise RuntimeError("run_once before open")
        return self._connection, self._position

    def _held(self) -> Lease:
        if self._lease is None:
            raise LeaseLostError(f"lane {self.lane} is not held")
        return self._lease
