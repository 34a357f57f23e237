"""Delivers one replay, with the steps of publisher/delivery, from the rows that its filters select.

The progress record is in the same Kafka transaction as the rows, so neither a retry nor a successor sends a row twice.
"""

import time
from collections.abc import Callable
from contextlib import closing
from uuid import UUID

import psycopg
import structlog

from contract.cursor import Cursor
from publisher.archive.catalogue import archive_id_at
from publisher.archive.opening import open_archive
from publisher.delivery.admission import Admission
from publisher.delivery.context import Context
from publisher.delivery.excluded_rows import ExcludedRows
from publisher.delivery.outbox_connection import OutboxConnection
from publisher.delivery.sender import Connection, Sender, StepOutcome, Tenure
from publisher.delivery.transaction import ProgressRecord
from publisher.delivery.transaction_size import TransactionSize
from publisher.kafka.clients import committed_reader
from publisher.kafka.progress_reader import progress_records
from publisher.outbox.lease import LeaseLostError
from publisher.outbox.ledger import commit_id_at
from publisher.outbox.loading import read_repeated_arrays
from publisher.protocol import remediation
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition, Mirror, continue_from
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import ExtraHeaders, Row
from publisher.protocol.refusals import RecordRefusedError
from publisher.protocol.stop_reasons import StartOverError, StoppedError, StopReason
from publisher.replay.archived import ArchiveReader
from publisher.replay.pace import Pace, Speed
from publisher.replay.progress_record import PARTITIONS, ReplayProgress, progress_key, progress_partition
from publisher.replay.reader import ReplayChunk, ReplayReader
from publisher.replay.refused_rows import RefusedRows
from publisher.replay.store import Replay, ReplayLease, load
from publisher.replay.target import WrittenTopics, allowed_topics, check_target
from service.errors import OutboxError, UnavailableError, reason_of
from service.lifecycle.fault_points import reach

_log = structlog.get_logger()

# Consumers of a partition see no live event after a replay's open transaction in it, so these transactions are short.
_MOST_ROWS = 250
_MOST_BYTES = 1_000_000
# If a replay is killed, consumers of its topics receive nothing, not even live events, until the broker ends its open transaction.
_MOST_TRANSACTION_TIMEOUT_MS = 15_000
_ABORT_DELAY_S = 10.0
"""A broker looks for expired transactions every ten seconds (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""

Progressed = Callable[[ReplayProgress], None]


class StateChangedError(Exception):
    """The replay no longer runs, because it was paused, cancelled or finished meanwhile."""


class ReplayDelivery:
    """One process's work on one replay, with the steps of the protocol (publisher/delivery). Not thread-safe."""

    def __init__(
        self,
        context: Context,
        replay: Replay,
        *,
        paused_too: bool = False,
        skip_refused: bool = False,
        progressed: Progressed = lambda _: None,
    ) -> None:
        """`paused_too`: whether to continue a paused replay. `skip_refused`: whether to count and leave out rows whose own content the
        target refuses; otherwise they stop the replay. `progressed` is called after each transaction.
        """
        publisher = context.settings.publisher
        self._context = context
        self._replay = replay
        self._outgoing = Outgoing(
            replay.replay_uuid,
            None if replay.topics is None else frozenset(replay.topics),
            replay.targets,
            ExtraHeaders.of(publisher),
        )
        self._connection = OutboxConnection(context, f"publisher replay {replay.replay_id}")
        refused_rows = RefusedRows(replay.replay_id, skip_refused=skip_refused)
        self._admission = Admission(context, self._outgoing, allowed_topics(replay, publisher), refused_rows)
        self._skipped = ExcludedRows()
        """Kept across `open`: no table lists skipped rows, and a row that only Kafka refuses cannot be detected again."""
        self._written_topics: WrittenTopics
        self._timeout_ms = min(publisher.transaction_timeout_ms, _MOST_TRANSACTION_TIMEOUT_MS)
        size = TransactionSize(
            min(publisher.transaction_sessions, _MOST_ROWS),
            min(publisher.transaction_bytes, _MOST_BYTES),
            self._timeout_ms / 1000,
        )
        self._sender = Sender(context, self._outgoing, self._connection.name, size, self._timeout_ms)
        self._partition = progress_partition(replay.replay_id)
        self._paused_too = paused_too
        self._progressed = progressed
        self._pace = Pace(replay.events_per_second)
        self._speed = Speed(time.monotonic())
        self._remediation = remediation.of_replay(replay.replay_id)
        self._lease: ReplayLease | None = None
        self._has_fenced = False
        """Whether the former holders of the lease are fenced, so that none of their transactions can be committed any more."""
        self._tenure: Tenure | None = None
        self._reader: ReplayReader | ArchiveReader
        self._newest: ReplayProgress | None = None
        """The newest progress record in Kafka, None before the first transaction."""
        self.rested_at = 0.0
        """When the replay last waited because of its rate, in monotonic seconds."""

    @property
    def replay_uuid(self) -> UUID:
        """The replay's uuid, in `outbox.replay` and in the header `outbox-replay`."""
        return self._replay.replay_uuid

    @property
    def limits(self) -> ChunkLimits:
        """How much the next transaction may carry: at most about one second's events at the rate."""
        limits = self._sender.limits
        events_per_row = self._replay.events_total / max(1, self._replay.rows_total)
        bounds = [most for most in (limits.events, self._pace.rate) if most is not None]
        return ChunkLimits(
            self._pace.rows(events_per_row, limits.rows), limits.bytes, events=min(bounds, default=None)
        )

    def open(self) -> None:
        """Do steps 1 to 4.

        Raises StateChangedError, LeaseLostError, StoppedError, KafkaException, psycopg.Error, UnavailableError.
        """
        connection = self._connection.open()
        reach("delivery.before_lease")
        self._acquire(connection)
        reach("delivery.after_lease")
        self._check_kafka()
        self._sender.fence(self._transactional_id, self._admission.batch_bytes)
        self._has_fenced = True
        reach("delivery.after_fencing")
        newest = self._read_progress()
        reach("delivery.after_progress")
        position = self._check_history(connection, newest)
        reach("delivery.after_check")
        if newest is not None and position.unrecorded:
            self._held().mirror(connection, newest, None)
        reach("delivery.after_filling")
        self._begin(connection, position, newest)

    def run_once(self) -> StepOutcome:
        """Do steps 5 and 6 for the next chunk. Raises as `open`, and StartOverError."""
        if self._tenure is None:
            raise RuntimeError("rows are delivered only after open")
        connection, position = self._tenure
        with self._sender.finding_refused(self._admission.exclude, self._refused_by_nobody):
            chunk = self._next_chunk(connection, position)
            if isinstance(chunk, StepOutcome):
                return chunk
            reach("delivery.after_read")
            rows = self._admission.admit(chunk.rows)
            reach("delivery.after_admission")
            progress, began_at = self._progress(position, chunk, rows), time.monotonic()
            offsets = self._sender.send(
                rows,
                [self._record_of(progress)],
                confirm=lambda: self._confirm_nothing_erased(connection),
                is_foreign=self._is_foreign,
            ).as_json()
            self._record(connection, progress, began_at, offsets)
            reach("delivery.after_record")
        self._sender.check()
        return StepOutcome.DELIVERED

    def discard(self) -> None:
        """Close the producer, whatever it is doing. The next `open` reads the outcome."""
        self._tenure = None
        self._sender.discard()
        self._connection.discard()

    def release(self, reason: str | None) -> None:
        """Give the lease back, and show `reason` if there is one. Never raises, because the lease ends with the connection anyway."""
        may_be_open = not (self._sender.end(self._transactional_id) and self._has_fenced)
        self.discard()
        lease, self._lease = self._lease, None
        try:
            if reason is not None and lease is not None:
                # A failure in the middle of a read has closed the connection, so the reason needs a new one.
                self._connection.get()
            if (held := self._connection.take()) is not None:
                with closing(held):
                    if lease is not None:
                        lease.release(held, reason, may_be_open=may_be_open)
        except (psycopg.Error, OutboxError) as error:
            # The log gets only the kind of reason, because the rest may name a session key. The command prints all of it.
            stopped = None if reason is None else reason.partition(":")[0]
            _log.warning("reason_not_recorded", reason=stopped, error=reason_of(error))

    @property
    def _transactional_id(self) -> str:
        outbox, publisher = self._context.outbox, self._context.settings.publisher
        prefix = outbox.transactional_id_prefix or publisher.transactional_id_prefix
        return f"{prefix}-{outbox.outbox_uuid}-replay-{self._replay.replay_id}"

    def _acquire(self, connection: Connection) -> None:
        replay_id, holder = self._replay.replay_id, self._context.holder
        # The lease must outlast the slowest transaction.
        lease_s = max(self._context.settings.publisher.lease_s, _ABORT_DELAY_S) + self._timeout_ms / 1000
        self._has_fenced = False
        self._lease = ReplayLease.claim(connection, replay_id, holder, lease_s, paused_too=self._paused_too)
        if self._lease is not None:
            # A later pause holds, even if Kafka did not answer and the next attempt claims the lease again.
            self._paused_too = False
            return
        found = load(connection, replay_id)
        if found.state != "running":
            raise StateChangedError
        if found.lease_holder == holder:
            raise UnavailableError("Postgres has not noticed yet that this process lost its connection")
        raise LeaseLostError(
            f"replay {replay_id} is worked on by {found.lease_holder} already. `publisher replay pause {replay_id}` ends that at a "
            "transaction boundary"
        )

    def _check_kafka(self) -> None:
        """Before anything is fenced, check that the cluster is the right one and that the progress topic exists."""
        context = self._context
        check_target(context, self._replay)
        context.topics.ensure_progress(
            context.progress_topic,
            PARTITIONS,
            context.settings.publisher.progress_replication,
            create=self._held().seq == 0,
            lost=self._remediation.lost,
        )

    def _read_progress(self) -> ReplayProgress | None:
        context = self._context
        key = progress_key(self._replay.replay_uuid)
        with progress_records(
            context.settings.kafka, context.topics, context.progress_topic, self._partition, context.give_up
        ) as records:
            value = next((record.value for record in records if record.key == key), None)
            return None if value is None else ReplayProgress.decode(value)

    def _check_history(self, connection: Connection, newest: ReplayProgress | None) -> DeliveryPosition:
        lease = self._held()
        start = DeliveryPosition(0, Cursor(self._replay.from_batch - 1), None)
        if newest is None and lease.seq == 0:
            return start
        at = archive_id_at if self._replay.from_archive else commit_id_at
        commit_id = None if newest is None else at(connection, newest.cursor.batch_id)
        mirror = Mirror(lease.seq, lease.cursor, lease.seq)
        return continue_from(self._context.identity, newest, mirror, start, commit_id, self._remediation)

    def _begin(
        self, connection: Connection, position: DeliveryPosition, newest: ReplayProgress | None
    ) -> None:
        read_repeated_arrays(connection)
        self._newest = newest
        written = {} if newest is None else newest.topics
        self._written_topics = WrittenTopics(self._context.topics, self._replay.replay_id, written)
        self._admission.begin(self._skipped, self._written_topics)
        if newest is not None:
            self._progressed(newest)
        if self._replay.from_archive:
            archive = open_archive(connection, self._context.settings.retention, writing=False)
            self._reader = ArchiveReader(
                connection, archive, self._replay, self._outgoing, self._remediation, self._renew
            )
        else:
            self._reader = ReplayReader(self._replay, self._outgoing, position.cursor, self._remediation)
        self._sender.begin(self._partition)
        self._tenure = Tenure(connection, position)

    def _confirm_nothing_erased(self, connection: Connection) -> None:
        """Raise StartOverError unless the lease has been held since the rows were read. While it is held, `publisher erase` erases none of
        them."""
        if not self._held().still_held(connection):
            raise StartOverError

    def _is_foreign(self, start: int, end: int) -> bool:
        """Whether other replays have written all records of the progress partition from `start` up to `end`."""
        context, key = self._context, progress_key(self._replay.replay_uuid)
        partition = context.progress_topic, self._partition
        # Only other replays write to the partition, and their transactions are short, too.
        with committed_reader(context.settings.kafka, context.give_up, self._timeout_ms / 3_000) as reader:
            return all(
                message.key() != key
                for messages in reader.read({partition: (start, end)})
                for message in messages
            )

    def _next_chunk(self, connection: Connection, position: DeliveryPosition) -> ReplayChunk | StepOutcome:
        if not self._paced(connection):
            return StepOutcome.IDLE
        if position.cursor >= Cursor(self._replay.to_batch):
            self._finish(connection)
            return StepOutcome.DONE
        try:
            return self._reader.read(connection, position, self.limits)
        except StoppedError as error:
            if error.reason is StopReason.ROWS_GONE:
                # If this process was frozen, they may have been erased: the next list is without them.
                self._confirm_nothing_erased(connection)
            raise

    def _paced(self, connection: Connection) -> bool:
        """Hold the lease, and wait until the rate allows the next transaction; return False once the process is to end."""
        stop = self._context.stop
        while (wait := self._pace.wait_s(time.monotonic())) > 0:
            self.rested_at = time.monotonic()
            if stop.wait(min(wait, 1.0, self._context.settings.publisher.lease_s / 3)):
                return False
            self._renew(connection)
        return not stop.is_set()

    def _renew(self, connection: Connection) -> None:
        if self._held().renew(connection) != "running":
            raise StateChangedError

    def _finish(self, connection: Connection) -> None:
        done = self._newest
        sent = (0, 0) if done is None else (done.rows, done.skipped)
        reason = None
        if self._replay.rows_total != sum(sent):
            reason = (
                f"{StopReason.ROWS_GONE}: {self._replay.rows_total} rows were counted when the replay was made, {sent[0]} were "
                f"sent and {sent[1]} left out: rows were erased, deleted or parked meanwhile"
            )
        reach("replay.before_done")
        if not self._held().finish(connection, reason):
            raise StateChangedError

    def _progress(self, position: DeliveryPosition, chunk: ReplayChunk, rows: list[Row]) -> ReplayProgress:
        before, context = self._newest, self._context
        events = [self._outgoing.events(row) for row in rows]
        return ReplayProgress(
            outbox_uuid=context.identity.outbox_uuid,
            cluster_id=context.identity.cluster_id,
            replay_uuid=self._replay.replay_uuid,
            seq=position.seq + 1,
            cursor=chunk.end,
            commit_id=chunk.commit_id,
            # Rows without any selected output do not count.
            rows=(0 if before is None else before.rows) + len(events) - events.count(0),
            events=(0 if before is None else before.events) + sum(events),
            skipped=(0 if before is None else before.skipped) + len(chunk.rows) - len(rows),
            topics=self._written_topics.ids,
        )

    def _record_of(self, progress: ReplayProgress) -> ProgressRecord:
        key = progress_key(progress.replay_uuid)
        return ProgressRecord(self._context.progress_topic, progress.encode(), key, self._partition)

    def _record(
        self,
        connection: Connection,
        done: ReplayProgress,
        began_at: float,
        offsets: dict[str, dict[str, list[int]]],
    ) -> None:
        """Step 6."""
        events = done.events - (0 if self._newest is None else self._newest.events)
        self._pace.sent(events, began_at)
        state = self._held().mirror(connection, done, self._speed.sent(events, time.monotonic()))
        self._newest = done
        self._tenure = Tenure(connection, DeliveryPosition(done.seq, done.cursor, done.commit_id))
        self._progressed(done)
        self._admission.check_offsets(offsets)
        if state != "running":
            raise StateChangedError

    def _refused_by_nobody(self, error: RecordRefusedError) -> Exception:
        return StoppedError(
            StopReason.ROW_REFUSED,
            f"Kafka refuses a record, but no row is to blame: {error}. Set this host's clock right, and the limits of topic "
            f"{self._context.progress_topic}; then `publisher replay go-on {self._replay.replay_id}`",
        )

    def _held(self) -> ReplayLease:
        if self._lease is None:
            raise RuntimeError("an open replay has a lease")
        return self._lease
