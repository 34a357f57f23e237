"""A lane that is ours and checked: step 5 of the protocol, again and again until the first exception."""

import time
from enum import Enum, auto
from typing import Any

import psycopg
import structlog
from confluent_kafka import Producer

from db.fault_points import reach
from publisher import metrics
from publisher.admission import Admission
from publisher.checks import LaneStoppedError, Position
from publisher.cursor import ChunkLimits
from publisher.deliveries import record_delivery
from publisher.hunt import ONE_BY_ONE_EVENTS
from publisher.lease import Lease
from publisher.offsets_watch import OffsetsWatch
from publisher.progress import Progress
from publisher.reader import Asked, Chunk, Reader
from publisher.records import ExtraHeaders, Row
from publisher.shared import Epoch, Shared
from publisher.stray_rows import StrayRows
from publisher.transaction import Transaction

_log = structlog.get_logger()


class Outcome(Enum):
    """What `run_once` did."""

    DELIVERED = auto()
    IDLE = auto()
    EPOCH_DONE = auto()


class OpenLane:
    """One tenure of a lane, with a producer that is its own. After any exception: `discard`, and open the lane again."""

    def __init__(
        self,
        shared: Shared,
        epoch: Epoch,
        lane: int,
        connection: psycopg.Connection[Any],
        lease: Lease,
        producer: Producer,
        admission: Admission,
        position: Position,
        *,
        most_rows: int | None,
        one_by_one: bool,
    ) -> None:
        """`most_rows` bounds a transaction further than the settings do (None: it does not); `one_by_one`: see Transaction."""
        publisher = shared.settings.publisher
        rows = publisher.transaction_sessions
        self._shared = shared
        self._epoch = epoch
        self._lane = lane
        self._connection = connection
        self._lease = lease
        self._producer = producer
        self._admission = admission
        self._offsets = OffsetsWatch(shared.topics)
        self._one_by_one = one_by_one
        self._headers = ExtraHeaders.of(publisher)
        self._reader = Reader(
            epoch.epoch,
            lane,
            ChunkLimits(
                rows if most_rows is None else min(rows, most_rows),
                publisher.transaction_bytes,
                # Record by record Kafka takes some hundreds a second, and a transaction must not outlast its timeout.
                events=ONE_BY_ONE_EVENTS if one_by_one else None,
            ),
        )
        self._stray_rows = StrayRows(epoch, lane, position)
        self._renewed_at = 0.0  # at once: taking the lane over may have lasted as long as a lease
        self._progressed_at = 0.0
        self._ahead: Chunk | None = None
        self.position = position
        """After the last transaction that was recorded."""

    def run_once(self) -> Outcome:
        """Read, produce, commit, record. Raises LaneStoppedError, RecordRefusedError, LeaseLostError, StartOverError, KafkaException,
        psycopg.Error, UnavailableError; the outcome is unknown then.
        """
        position = self.position
        chunk, self._ahead = self._ahead or self._reader.read(self._connection, position), None
        self._stray_rows.check(self._connection, chunk.end)
        if chunk.end == position.cursor or not self._worth_a_transaction(chunk):
            self._renew()
            return Outcome.EPOCH_DONE if chunk.ends_epoch() and chunk.end == position.cursor else Outcome.IDLE
        reach("lane.after_read")
        rows = self._admission.admit(self._connection, self._lease, chunk.rows)
        reach("lane.after_admission")
        progress = self._progress(rows, chunk, position)
        self._deliver(rows, chunk, progress, position)
        self._renewed_at = self._progressed_at = time.monotonic()
        _log.debug(
            "delivered",
            lane=self._lane,
            seq=progress.seq,
            batch_id=progress.cursor.batch_id,
            sessions=progress.sessions,
            events=progress.events,
        )
        return Outcome.DELIVERED

    def discard(self) -> None:
        """Throw the producer away, whatever it was doing."""
        self._producer.purge()

    def _worth_a_transaction(self, chunk: Chunk) -> bool:
        due = self._progressed_at + self._shared.settings.publisher.idle_progress_s
        return bool(chunk.rows) or chunk.more or chunk.ends_epoch() or time.monotonic() >= due

    def _renew(self) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= self._shared.settings.publisher.lease_s / 3:
            self._lease.renew(self._connection)
            self._renewed_at = now

    def _progress(self, rows: list[Row], chunk: Chunk, position: Position) -> Progress:
        if chunk.commit_id is None:
            raise RuntimeError("a lane delivers only what the ledger has")
        identity = self._shared.identity
        sessions = sum([len(row.session_ends) for row in rows])
        events = sum([len(row.topics) for row in rows])
        parked = len(chunk.rows) - len(rows)
        return Progress(
            outbox_uuid=identity.outbox_uuid,
            cluster_id=identity.cluster_id,
            epoch=self._epoch.epoch,
            lane=self._lane,
            seq=position.seq + 1,
            after=position.cursor,
            cursor=chunk.end,
            commit_id=chunk.commit_id,
            sessions=sessions,
            events=events,
            parked=parked,
            total=position.total.plus(sessions, events, parked),
        )

    def _deliver(self, rows: list[Row], chunk: Chunk, progress: Progress, before: Position) -> None:
        """Produce, commit, record. While Kafka commits, Postgres looks for the next chunk.

        That chunk is kept only if the ledger still has both of its ends when the delivery is recorded, which is after
        Kafka's commit and before the next begin: commit ids are random, so it then is what a read of that moment would
        find, and a database restored in between is noticed as if it had been read then. Batches are only ever appended
        and an epoch begins after every batch of its time, so what the ledger gained meanwhile is no part of it.
        """
        after = Position(progress.seq, progress.cursor, progress.commit_id, total=progress.total)
        asked: list[Asked] = []

        def read_ahead() -> None:
            # A refusal with an answer under way would cost the connection, on which the row is parked next.
            if not chunk.more or self._one_by_one:
                return
            try:
                asked.append(self._reader.ask(self._connection, after))
            except psycopg.Error as error:
                # Kafka commits all the same, and the record then fails: an open transaction would hold up every reader of its topics until
                # the broker ends it, since the lane opens anew only once Postgres is back.
                self._connection.close()
                _log.debug("not_read_ahead", lane=self._lane, reason=str(error).strip())

        transaction = Transaction(
            self._producer, self._headers, self._shared.stop, one_by_one=self._one_by_one
        )
        try:
            with metrics.transaction(progress):
                transaction.run(rows, self._shared.progress_topic, progress, read_ahead)
        except BaseException:
            if asked:
                # Nobody waits for its answer any more, and nothing else could be asked before it.
                self._connection.close()
            raise
        ahead = self._take(asked[0]) if asked else None
        end = None if ahead is None or ahead.commit_id is None else (ahead.end.batch_id, ahead.commit_id)
        sound = record_delivery(
            self._connection, self._lease, progress, before.cursor, transaction.tally, end
        )
        reach("lane.after_delivery")
        self.position, self._ahead = after, ahead if sound else None
        self._offsets.check(self._connection, transaction.tally)

    def _take(self, asked: Asked) -> Chunk | None:
        try:
            return self._reader.take(asked)
        except LaneStoppedError:
            # What is in Kafka is recorded first; the next read finds the same and says so.
            return None
