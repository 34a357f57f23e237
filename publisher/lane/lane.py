"""Delivers the rows of one lane in order, with the steps of publisher/delivery."""

import time
from collections.abc import Sequence, Set
from typing import NamedTuple

import structlog

from contract.cursor import Cursor
from contract.output_topics import OutputTopics
from contract.progress import Progress
from db.statements import queries
from publisher.delivery.admission import Admission
from publisher.delivery.context import Context
from publisher.delivery.excluded_rows import ExcludedRows
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.delivery.sender import Connection, Sender, StepOutcome, Tenure
from publisher.delivery.transaction import ProgressRecord
from publisher.delivery.transaction_size import TransactionSize
from publisher.kafka.progress_reader import Newest, later_than, newest_of, partition_records
from publisher.lane.parking import Parking
from publisher.lane.read_ahead import ReadAhead
from publisher.lane.reader import LaneChunk, LaneReader
from publisher.lane.stray_rows import StrayRows
from publisher.monitoring import latency
from publisher.outbox.deliveries import record_delivery, record_resume
from publisher.outbox.identity import check_cluster
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.outbox.ledger import commit_id_at
from publisher.outbox.loading import read_repeated_arrays
from publisher.outbox.parked import parked_after, parked_up_to, parked_within
from publisher.outbox.topic_ids import BoundTopics
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import (
    DeliveryPosition,
    Mirror,
    check_later,
    check_parked,
    check_resumed_parked,
    continue_from,
)
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import ExtraHeaders, Row
from publisher.protocol.refusals import RecordRefusedError, no_row_s_fault
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.lifecycle.allocators import give_back
from service.lifecycle.fault_points import reach
from service.observability import tracing
from service.observability.loops import LifeSign, unwatched

_LANES = queries("publisher", "lanes")

_log = structlog.get_logger()


class _Sending(NamedTuple):
    """The transaction under way: its progress record, and the values that are measured once Kafka has committed it."""

    progress: Progress
    times: Sequence[latency.RowTimes]
    batches: Set[int]
    began: float


class Lane:
    """One lane of an epoch, delivered with the steps of the protocol (publisher/delivery). One thread works on it."""

    def __init__(self, context: Context, epoch: Epoch, lane: int) -> None:
        publisher = context.settings.publisher
        outgoing = Outgoing(headers=ExtraHeaders.of(publisher))
        timeout_ms = publisher.transaction_timeout_ms
        size = TransactionSize(publisher.transaction_sessions, publisher.transaction_bytes, timeout_ms / 1000)
        self._context = context
        self._epoch = epoch
        self.lane = lane
        self._connection = OutboxConnection(context, f"publisher lane {epoch.epoch}/{lane}")
        allowed = OutputTopics(publisher.output_topics, publisher.progress_topic)
        parking = Parking(self._connection, self._held, context.topics)
        self._admission = Admission(context, outgoing, allowed, parking)
        self.sender = Sender(context, outgoing, self._connection.name, size, timeout_ms)
        self._chunks = ReadAhead(
            LaneReader(epoch.epoch, lane), context.large_row_turns, publisher.transaction_bytes
        )
        self._lease: Lease | None = None
        self._tenure: Tenure | None = None
        self._renewed_at = self._progressed_at = 0.0
        self._committed: tuple[Progress, dict[str, dict[str, list[int]]]] | None = None
        """The newest transaction that Kafka committed, with its offsets. Kept because Postgres may fail before it is recorded."""
        self.alive: LifeSign = unwatched
        """Called with each step and its time limit."""

    @property
    def position(self) -> DeliveryPosition | None:
        """The position after the last recorded transaction, None while the lane is not open."""
        return None if self._tenure is None else self._tenure.position

    def open(self) -> bool:
        """Do steps 1 to 4. Returns False if another process holds the lane, or if rows of an earlier epoch must be delivered first.

        Raises StoppedError, LeaseLostError, KafkaException, psycopg.Error, UnavailableError.
        """
        # Until the lease is claimed, `confirm` has nothing to check, and every failure is taken at face value.
        self._lease = None
        connection = self._connection.open()
        reach("delivery.before_lease")
        if not self._acquire(connection):
            return False
        reach("delivery.after_lease")
        self._check_kafka(connection)
        self.sender.fence(self._transactional_id, self._admission.batch_bytes)
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
        self._begin(connection, position)
        return True

    def run_once(self) -> StepOutcome:
        """Do steps 5 and 6 for the next chunk. Raises as `open`, and StartOverError, HandoverStuckError."""
        if self._tenure is None:
            raise RuntimeError("rows are delivered only after open")
        try:
            outcome = self._deliver(self._tenure)
        except StoppedError as error:
            if error.reason is StopReason.OUTPUT_TOPIC_REPLACED:
                # Another cluster behind the same address has other topics, but needs another remedy, so check the cluster first.
                check_cluster(self._context.identity.cluster_id, self._context.topics.cluster_id())
            raise
        if self._chunks.has_large_row:
            # Every transaction is recorded, so the connection may be replaced.
            self._let_large_row_go()
            connection = self._connection.get()
            read_repeated_arrays(connection)
            self._tenure = self._tenure._replace(connection=connection)
        return outcome

    def confirm(self) -> None:
        """Raise LeaseLostError if another process has taken the lane. That process's work may look like damage."""
        if self._lease is not None:
            self._lease.renew(self._connection.get())

    def show_stopped(self, explanation: str, reason: StopReason | None = None) -> None:
        """Show in `outbox.lane` why the lane is stopped or, without a `reason`, why it retries. Does nothing unless the lane is held."""
        self._show(explanation, reason, runs=False)

    def show_running(self, explanation: str | None) -> None:
        """Show in `outbox.lane` that the lane runs. `explanation`: why its transactions are smaller, None if they are not."""
        self._show(explanation, None, runs=True)

    def _show(self, explanation: str | None, reason: StopReason | None, *, runs: bool) -> None:
        if self._lease is not None:
            shown = {"explanation": explanation, "reason": reason, "runs": runs}
            self._connection.get().execute(_LANES["set_stopped"], self._lease.parameters | shown)

    def discard(self) -> None:
        """Close the producer, whatever it is doing, and drop the chunk that was read ahead. The next `open` reads the outcome."""
        self._chunks.discard()
        self._tenure = None
        self.sender.discard()
        self._connection.discard()
        self._let_large_row_go()

    def close(self, *, keep_lease: bool = False) -> None:
        """Give the lease back, unless `keep_lease`, and disconnect. The lane can be opened again."""
        self.discard()
        held = self._connection.take()
        if held is not None:
            with held as connection:
                if self._lease is not None and not keep_lease:
                    self._lease.release(connection)
        self._lease = None

    @property
    def _transactional_id(self) -> str:
        return lane_transactional_id(self._context, self._epoch.epoch, self.lane)

    def _acquire(self, connection: Connection) -> bool:
        settings = self._context.settings.publisher
        self._lease = Lease.claim(
            connection, self._epoch.epoch, self.lane, self._context.holder, settings.lease_s
        )
        return self._lease is not None

    def _check_kafka(self, connection: Connection) -> None:
        """Before anything is fenced, check that this is the right cluster and that the progress topic exists."""
        context = self._context
        check_cluster(context.identity.cluster_id, context.topics.cluster_id())
        any_progress = connection.execute(_LANES["any_progress"]).fetchone()
        context.topics.ensure_progress(
            context.progress_topic,
            self._epoch.lanes,
            context.settings.publisher.progress_replication,
            create=any_progress is not None and not any_progress[0],
        )

    def _read_progress(self) -> Newest:
        """Read the newest records of the lane's partition. Lane 0 also reads the partitions beyond its epoch's lanes, for later epochs."""
        epoch, context = self._epoch, self._context
        with partition_records(
            context.settings.kafka, context.topics, context.progress_topic, context.give_up
        ) as records_of:
            newest = newest_of(records_of(self.lane), epoch.epoch, self.lane)
            if self.lane == 0:
                for partition in range(epoch.lanes, context.topics.partitions(context.progress_topic)):
                    self.alive(doing=f"reads partition {partition} of the progress topic")
                    newest.later.update(later_than(records_of(partition), epoch.epoch))
        return newest

    def _check_history(self, connection: Connection, newest: Newest) -> DeliveryPosition | None:
        """Return the position after which to continue, None if rows of an earlier epoch must be delivered first. Raises StoppedError."""
        row = connection.execute(_LANES["state"], self._held().parameters).fetchone()
        if row is None:
            raise LeaseLostError(
                f"lane {self.lane} of epoch {self._epoch.epoch} was taken over by another publisher"
            )
        check_later(newest.later, row[4])
        if row[5]:
            # A resume has moved a lane of an earlier epoch back. Its rows come before any row of this epoch, to keep the order of each key.
            return None
        record = newest.record
        mirror = Mirror(row[0], Cursor(row[1], row[2]), row[3], resuming=row[6])
        first = Cursor(self._epoch.from_batch - 1)
        at = (record.cursor if record is not None else first).batch_id
        commit_id = commit_id_at(connection, at)
        return continue_from(
            self._context.identity, record, mirror, DeliveryPosition(0, first, commit_id), commit_id
        )

    def _record_missing(self, connection: Connection, newest: Newest) -> None:
        unrecorded, lease = newest.record, self._held()
        if unrecorded is None:
            return
        if unrecorded.resumed is not None:
            known = parked_up_to(connection, unrecorded.epoch, unrecorded.lane, unrecorded.cursor)
            check_resumed_parked(unrecorded, known)
            record_resume(connection, lease, unrecorded)
            return
        check_parked(unrecorded, parked_within(connection, lease, unrecorded))
        committed, offsets = self._committed or (None, None)
        own = offsets if committed == unrecorded else None
        record_delivery(connection, lease, unrecorded, unrecorded.after, own)

    def _begin(self, connection: Connection, position: DeliveryPosition) -> None:
        read_repeated_arrays(connection)
        parked = parked_after(self._connection.get, self._held(), position.cursor)
        self._admission.begin(ExcludedRows(parked), BoundTopics(self._connection.get))
        self._stray_rows = StrayRows(self._epoch, self.lane, position)
        self.sender.begin(self.lane)
        self._renewed_at = 0.0  # at once: taking the lane over may have lasted as long as a lease
        self._progressed_at = 0.0
        self._tenure = Tenure(connection, position)

    def _deliver(self, tenure: Tenure) -> StepOutcome:
        connection, position = tenure
        with self.sender.finding_refused(self._admission.exclude, self._refused_by_nobody):
            self.alive(doing="reads its next rows")
            chunk = self._next_chunk(connection, position)
            if isinstance(chunk, StepOutcome):
                return chunk
            reach("delivery.after_read")
            self.alive(doing="asks Kafka about its topics")
            rows = self._admission.admit(chunk.rows)
            reach("delivery.after_admission")
            sending = self._sending(position, chunk, rows)
            # During the search for a refused row nothing is read ahead: parking the row needs the connection, which a pending answer
            # blocks.
            reads_ahead, limits = chunk.more and not self.sender.searches, self.sender.limits
            after = _after(sending.progress)
            offsets = self.sender.send(
                rows,
                [self._record_of(sending.progress)],
                alive=self.alive,
                meanwhile=lambda: self._chunks.ask(connection, after, limits) if reads_ahead else None,
            ).as_json()
            self._committed = sending.progress, offsets
            self.alive(doing="records its delivery")
            self._record(tenure, sending, offsets)
            reach("delivery.after_record")
        self.sender.check()
        return StepOutcome.CAUGHT_UP if chunk.is_last else StepOutcome.DELIVERED

    def _next_chunk(self, connection: Connection, position: DeliveryPosition) -> LaneChunk | StepOutcome:
        chunk = self._chunks.next(connection, position, self.sender.limits)
        self._stray_rows.check(connection, chunk.end)
        if chunk.end != position.cursor and self._worth_a_transaction(chunk):
            return chunk
        self._renew(connection)
        return StepOutcome.DONE if chunk.ends_epoch() and chunk.end == position.cursor else StepOutcome.IDLE

    def _worth_a_transaction(self, chunk: LaneChunk) -> bool:
        due = self._progressed_at + self._context.settings.publisher.idle_progress_s
        return bool(chunk.rows) or chunk.more or chunk.ends_epoch() or time.monotonic() >= due

    def _renew(self, connection: Connection) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= self._context.settings.publisher.lease_s / 3:
            self._held().renew(connection)
            self._renewed_at = now

    def _sending(self, position: DeliveryPosition, chunk: LaneChunk, rows: list[Row]) -> _Sending:
        """Return the transaction that carries `rows` of the chunk."""
        if chunk.commit_id is None:
            raise RuntimeError("a lane delivers only what the ledger has")
        identity = self._context.identity
        sessions = sum([len(row.session_ends) for row in rows])
        events = sum([len(row.topics) for row in rows])
        parked = len(chunk.rows) - len(rows)
        progress = Progress(
            outbox_uuid=identity.outbox_uuid,
            cluster_id=identity.cluster_id,
            epoch=self._epoch.epoch,
            lane=self.lane,
            seq=position.seq + 1,
            after=position.cursor,
            cursor=chunk.end,
            commit_id=chunk.commit_id,
            sessions=sessions,
            events=events,
            parked=parked,
            total=position.total.plus(sessions, events, parked),
        )
        batches = {row.batch_id for row in rows} if tracing.is_on() else frozenset()
        return _Sending(progress, _times(chunk, rows), batches, time.monotonic())

    def _record_of(self, progress: Progress) -> ProgressRecord:
        return ProgressRecord(self._context.progress_topic, progress.encode(), progress.key(), self.lane)

    def _record(self, before: Tenure, sent: _Sending, offsets: dict[str, dict[str, list[int]]]) -> None:
        """Step 6."""
        progress, connection = sent.progress, before.connection
        latency.delivered(sent.times)
        _trace(sent)
        ahead = self._chunks.answer()
        end = None if ahead is None or ahead.commit_id is None else (ahead.end.batch_id, ahead.commit_id)
        sound = record_delivery(connection, self._held(), progress, before.position.cursor, offsets, end)
        self._tenure = before._replace(position=_after(progress))
        self._chunks.keep(ahead if sound else None)
        self._renewed_at = self._progressed_at = time.monotonic()
        self._context.deliveries.add(
            self._epoch.epoch,
            self.lane,
            progress.seq,
            batch=progress.cursor.batch_id,
            sessions=progress.sessions,
            events=progress.events,
            parked=progress.parked,
        )
        self._admission.check_offsets(offsets)

    def _let_large_row_go(self) -> None:
        """Give the turn for large rows back, and close the connection, whose memory stays as large as its largest answer."""
        if self._chunks.has_large_row:
            held = self._connection.take()
            if held is not None:
                held.close()
            give_back()
        self._chunks.end_large_row()

    def _refused_by_nobody(self, error: RecordRefusedError) -> Exception:
        text = no_row_s_fault(error.code, str(error), self._context.progress_topic)
        return StoppedError(StopReason.RECORD_REFUSED, text, retry=True)

    def _held(self) -> Lease:
        if self._lease is None:
            raise LeaseLostError(f"lane {self.lane} is not held")
        return self._lease


def lane_transactional_id(context: Context, epoch: int, lane: int) -> str:
    """Return the transactional id of a lane."""
    prefix = context.settings.publisher.transactional_id_prefix
    return f"{prefix}-{context.identity.outbox_uuid}-{epoch}-{lane}"


def _times(chunk: LaneChunk, rows: Sequence[Row]) -> Sequence[latency.RowTimes]:
    """Return the times of the chunk's rows that are sent: all rows, unless some are parked."""
    if len(rows) == len(chunk.rows):
        return chunk.times
    sent = {row.row_key for row in rows}
    return [times for row, times in zip(chunk.rows, chunk.times, strict=True) if row.row_key in sent]


def _trace(sent: _Sending) -> None:
    progress = sent.progress
    if tracing.is_on() and progress.sessions:
        tracing.transaction(
            sent.batches,
            time.monotonic() - sent.began,
            {
                "outbox.epoch": progress.epoch,
                "outbox.lane": progress.lane,
                "outbox.seq": progress.seq,
                "outbox.sessions": progress.sessions,
                "outbox.outputs": progress.events,
            },
        )


def _after(progress: Progress) -> DeliveryPosition:
    return DeliveryPosition(progress.seq, progress.cursor, progress.commit_id, total=progress.total)
