"""One lane: the unit of order."""

import time
from collections.abc import Sequence, Set

import psycopg
import structlog

from contract.cursor import Cursor
from contract.progress import Progress
from db.statements import queries
from publisher.delivery.context import Context
from publisher.delivery.delivery import Connection, Delivery, StepOutcome
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.delivery.transaction import OffsetTally, ProgressRecord
from publisher.kafka.progress_reader import Newest, later_than, newest_of, partition_records
from publisher.lane.parking import LaneAdmission
from publisher.lane.reader import ANY_SIZE, LaneChunk, LaneReader, PendingChunk
from publisher.lane.stray_rows import StrayRows
from publisher.monitoring import latency
from publisher.outbox.deliveries import (
    commit_id_at,
    parked_up_to,
    parked_within,
    record_delivery,
    record_resume,
)
from publisher.outbox.identity import check_cluster
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.outbox.loading import read_repeated_arrays
from publisher.protocol.cursor import Epoch
from publisher.protocol.history import (
    DeliveryPosition,
    Mirror,
    check_later,
    check_parked,
    check_resumed_parked,
    decide,
)
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import ExtraHeaders, Row
from publisher.protocol.refusals import RecordRefusedError, no_row_s_fault
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.lifecycle.allocators import give_back
from service.lifecycle.tracebacks import release_frames
from service.observability import tracing

_LANES = queries("publisher", "lanes")

_log = structlog.get_logger()

# How long a lane waits for its turn with a large row before it shows that it lives, and asks again.
_LARGE_ROW_WAIT_S = 0.5


class Lane(Delivery[Newest, LaneChunk]):
    """One lane of an epoch. One thread works on it."""

    def __init__(self, context: Context, epoch: Epoch, lane: int) -> None:
        publisher = context.settings.publisher
        outgoing = Outgoing(headers=ExtraHeaders.of(publisher))
        connection = OutboxConnection(context, f"publisher lane {epoch.epoch}/{lane}")
        self._parking = LaneAdmission(context, connection, outgoing)
        super().__init__(context, connection, outgoing, self._parking)
        self._epoch = epoch
        self.lane = lane
        self._lease: Lease | None = None
        self._reader = LaneReader(epoch.epoch, lane)
        self._most_row_bytes = publisher.transaction_bytes
        self._holds_large_row = False
        self._ahead: LaneChunk | None = None
        self._asked: PendingChunk | None = None
        self._under_way: Progress | None = None
        self._times: Sequence[latency.RowTimes] = ()
        self._batches: Set[int] = frozenset()
        self._began = 0.0
        self._reads_ahead = False
        self._renewed_at = self._progressed_at = 0.0

    def open(self) -> bool:
        """As Delivery does."""
        # What is found wrong before there is a new lease needs none to be believed.
        self._lease = None
        return super().open()

    def run_once(self) -> StepOutcome:
        """As Delivery does."""
        try:
            outcome = super().run_once()
        except StoppedError as error:
            if error.reason is StopReason.OUTPUT_TOPIC_REPLACED:
                # Another cluster behind the same address has other topics, and another way out.
                check_cluster(self._context.identity.cluster_id, self._context.topics.cluster_id())
            raise
        if self._holds_large_row and self._tenure is not None:
            # Everything is recorded: nothing depends on the connection.
            self._let_large_row_go()
            connection = self._connection.get()
            read_repeated_arrays(connection)
            self._tenure = self._tenure._replace(connection=connection)
        return outcome

    def confirm(self) -> None:
        """Raise LeaseLostError if another process has taken the lane: what looks wrong may be its work."""
        if self._lease is not None:
            self._lease.renew(self._connection.get())

    def stopped(self, explanation: str | None, reason: StopReason | None = None) -> None:
        """Show in `outbox.lane` why the lane is stopped, None once it runs; if Postgres can be reached and the lane is ours."""
        if self._lease is not None:
            self._connection.get().execute(
                _LANES["set_stopped"], self._lease.parameters | {"explanation": explanation, "reason": reason}
            )

    def discard(self) -> None:
        """Close the producer, whatever it was doing, and drop the chunk that was read ahead."""
        self._ahead = None
        if self._asked is not None:
            # Nothing else could be asked before its answer.
            self._asked.connection.close()
            self._asked = None
        super().discard()
        self._let_large_row_go()

    def _let_large_row_go(self) -> None:
        """Give the turn for large rows back. The connection goes, too: it keeps the memory of its largest answer."""
        if self._holds_large_row:
            self._holds_large_row = False
            held = self._connection.take()
            if held is not None:
                held.close()
            give_back()
        self._context.large_rows.end(self)

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

    def _prepare(self, connection: Connection) -> None:
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
        """Lane 0 also looks into the partitions that only a later epoch with more lanes can have made."""
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
        row = connection.execute(_LANES["state"], self._held().parameters).fetchone()
        if row is None:
            raise LeaseLostError(
                f"lane {self.lane} of epoch {self._epoch.epoch} was taken over by another publisher"
            )
        check_later(newest.later, row[4])
        if row[5]:
            # A resume has set a lane of it back: its rows go out before any of this epoch, for the order of each key.
            return None
        record = newest.record
        mirror = Mirror(row[0], Cursor(row[1], row[2]), row[3], resuming=row[6])
        first = Cursor(self._epoch.from_batch - 1)
        at = (record.cursor if record is not None else first).batch_id
        commit_id = commit_id_at(connection, at)
        return decide(
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
        record_delivery(connection, lease, unrecorded, unrecorded.after, None)

    def _begin(self, connection: Connection, position: DeliveryPosition) -> None:
        read_repeated_arrays(connection)
        self._parking.begin_tenure(connection, self._held(), position.cursor)
        self._stray_rows = StrayRows(self._epoch, self.lane, position)
        self._progress_from = self._context.topics.written.last_read(self._context.progress_topic, self.lane)
        self._renewed_at = 0.0  # at once: taking the lane over may have lasted as long as a lease
        self._progressed_at = 0.0

    def _next_chunk(self, connection: Connection) -> LaneChunk | StepOutcome:
        position = self._open_position()
        chunk, self._ahead = self._ahead or self._read(connection, position, self._most_row_bytes), None
        if chunk.is_large and self._context.large_rows.take(self, _LARGE_ROW_WAIT_S):
            self._holds_large_row = True
            chunk = self._read(connection, position, ANY_SIZE)
        self._stray_rows.check(connection, chunk.end)
        if chunk.end != position.cursor and self._worth_a_transaction(chunk):
            return chunk
        self._renew(connection)
        return StepOutcome.DONE if chunk.ends_epoch() and chunk.end == position.cursor else StepOutcome.IDLE

    def _read(self, connection: Connection, position: DeliveryPosition, most_row_bytes: int) -> LaneChunk:
        return self._reader.read(connection, position, self.limits, most_row_bytes)

    def _worth_a_transaction(self, chunk: LaneChunk) -> bool:
        due = self._progressed_at + self._context.settings.publisher.idle_progress_s
        return bool(chunk.rows) or chunk.more or chunk.ends_epoch() or time.monotonic() >= due

    def _renew(self, connection: Connection) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= self._context.settings.publisher.lease_s / 3:
            self._held().renew(connection)
            self._renewed_at = now

    def _progress(self, chunk: LaneChunk, rows: list[Row]) -> Sequence[ProgressRecord]:
        if chunk.commit_id is None:
            raise RuntimeError("a lane delivers only what the ledger has")
        identity, position = self._context.identity, self._open_position()
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
        # A refusal with an answer under way would cost the connection, on which the row is parked next.
        self._reads_ahead = chunk.more and not self._bisection.on
        self._under_way, self._times = progress, _times(chunk, rows)
        if tracing.is_on():
            self._began, self._batches = time.monotonic(), {row.batch_id for row in rows}
        return [ProgressRecord(self._context.progress_topic, progress.encode(), progress.key(), self.lane)]

    def _meanwhile(self, connection: Connection) -> None:
        """While Kafka commits, Postgres looks for the next chunk.

        That chunk is kept only if the ledger still has both of its ends when the delivery is recorded, which is after
        Kafka's commit and before the next begin: commit ids are random, so it then is what a read of that moment would
        find, and a database restored in between is noticed as if it had been read then. Batches are only ever appended
        and an epoch begins after every batch of its time, so what the ledger gained meanwhile is no part of it.
        """
        if self._under_way is None or not self._reads_ahead:
            return
        try:
            self._asked = self._reader.ask(
                connection, _after(self._under_way), self.limits, self._most_row_bytes
            )
        except psycopg.Error as error:
            # Kafka commits all the same, and the record then fails: an open transaction would hold up every reader of its topics until
            # the broker ends it, since the lane opens anew only once Postgres is back.
            connection.close()
            release_frames(error)
            _log.debug("not_read_ahead", lane=self.lane, reason=str(error).strip())

    def _record(self, connection: Connection, tally: OffsetTally) -> None:
        progress, before = self._under_way, self._open_position()
        if progress is None:
            raise RuntimeError("a lane records what it has sent")
        latency.delivered(self._times)
        if tracing.is_on() and progress.sessions:
            tracing.transaction(
                self._batches,
                time.monotonic() - self._began,
                {
                    "outbox.epoch": progress.epoch,
                    "outbox.lane": progress.lane,
                    "outbox.seq": progress.seq,
                    "outbox.sessions": progress.sessions,
                    "outbox.outputs": progress.events,
                },
            )
        ahead, offsets = self._take_ahead(), tally.as_json()
        end = None if ahead is None or ahead.commit_id is None else (ahead.end.batch_id, ahead.commit_id)
        sound = record_delivery(connection, self._held(), progress, before.cursor, offsets, end)
        self.position, self._ahead = _after(progress), ahead if sound else None
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

    def _take_ahead(self) -> LaneChunk | None:
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        try:
            return self._reader.take(asked)
        except StoppedError:
            # What is in Kafka is recorded first; the next read finds the same and says so.
            return None

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
    """Return the times of those rows of the chunk that go out: all of them, unless some are parked."""
    if len(rows) == len(chunk.rows):
        return chunk.times
    sent = {(row.batch_id, row.session_key) for row in rows}
    return [
        times
        for row, times in zip(chunk.rows, chunk.times, strict=True)
        if (row.batch_id, row.session_key) in sent
    ]


def _after(progress: Progress) -> DeliveryPosition:
    return DeliveryPosition(progress.seq, progress.cursor, progress.commit_id, total=progress.total)
