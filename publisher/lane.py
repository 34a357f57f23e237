"""One lane: the unit of order. `open` takes it over from whoever had it, `run_once` does one Kafka transaction (open_lane.py)."""

from typing import Any

import psycopg
from confluent_kafka import KafkaException, Producer

from db.fault_points import reach
from db.statements import statement
from publisher import metrics
from publisher.admission import Admission
from publisher.checks import (
    LaneStoppedError,
    Mirror,
    Position,
    Why,
    check_later,
    check_parked,
    check_resumed_parked,
    decide,
)
from publisher.condition import LaneCondition
from publisher.cursor import Cursor
from publisher.deliveries import (
    commit_id_at,
    parked_up_to,
    parked_within,
    record_delivery,
    record_resume,
)
from publisher.hunt import Hunt
from publisher.identity import check_cluster
from publisher.lane_connection import LaneConnection
from publisher.lease import Lease, LeaseLostError
from publisher.link import Link
from publisher.open_lane import OpenLane, Outcome
from publisher.progress import Progress
from publisher.progress_reader import Newest
from publisher.refusals import no_row_s_fault
from publisher.shared import Epoch, Shared, StartOverError
from publisher.takeover import fencing_producer, newest_progress, transactional_id
from publisher.transaction import RecordRefusedError


class Lane:
    """One lane of an epoch. Not thread-safe: one thread works on it."""

    def __init__(self, shared: Shared, epoch: Epoch, lane: int, condition: LaneCondition) -> None:
        """`condition` is told of each producer."""
        self._shared = shared
        self._condition = condition
        self._epoch = epoch
        self.lane = lane
        self._connection = LaneConnection(shared, f"publisher lane {epoch.epoch}/{lane}")
        self._lease: Lease | None = None
        self._open: OpenLane | None = None
        self._admission = Admission(shared.settings, shared.topics, shared.stop.is_set)
        self._hunt = Hunt()
        self._link = Link()

    @property
    def position(self) -> Position | None:
        """Where the lane is, None while it is not open."""
        return None if self._open is None else self._open.position

    def open(self) -> bool:
        """Take the lane over, steps 1 to 4 of the protocol. Returns False when another publisher holds it or
        an earlier epoch is not through.

        Raises LaneStoppedError, KafkaException, psycopg.Error, UnavailableError.
        """
        settings = self._shared.settings
        # 1. The lease, for liveness only.
        self._lease = None
        connection = self._connection.open()
        reach("lane.before_lease")
        self._lease = Lease.claim(
            connection, self._epoch.epoch, self.lane, self._shared.holder, settings.publisher.lease_s
        )
        if self._lease is None:
            return False
        reach("lane.after_lease")
        # 2. Fence any older holder and end its open transaction. Only then is Kafka's word final.
        self._prepare_topic(connection)
        producer = self._init_producer()
        reach("lane.after_fencing")
        # 3. and 4. What Kafka says, and whether Postgres tells the same history.
        newest = self._read_progress()
        reach("lane.after_progress")
        position = self._decide(connection, newest)
        if position is None:
            return False
        reach("lane.after_check")
        unrecorded = position.unrecorded
        if unrecorded is not None:
            self._record(connection, self._lease, unrecorded)
        reach("lane.after_filling")
        self._admission.begin(connection, self._lease, position.cursor)
        self._open = OpenLane(
            self._shared,
            self._epoch,
            self.lane,
            connection,
            self._lease,
            producer,
            self._admission,
            position,
            most_rows=self._hunt.rows,
            one_by_one=self._hunt.one_by_one,
        )
        self._condition.producer = producer
        return True

    def run_once(self) -> Outcome:
        """Step 5: read, produce, commit, record. Raises as `open`, and LeaseLostError, StartOverError.

        After any exception the outcome is unknown: call `discard` and begin again with `open`.
        """
        if self._open is None:
            raise RuntimeError("a lane delivers only after open")
        try:
            outcome = self._open.run_once()
        except RecordRefusedError as error:
            self._put_aside(error)
            raise StartOverError from error
        except KafkaException:
            self._hunt.failed()
            raise
        except LaneStoppedError as error:
            if error.why is Why.OUTPUT_TOPIC_REPLACED:
                # Another cluster behind the same address has other topics, and another way out.
                check_cluster(self._shared.identity.cluster_id, self._shared.topics.cluster_id())
            raise
        if self._hunt.on and outcome is Outcome.DELIVERED:
            self._hunt.delivered()
            raise StartOverError
        if self._link.has_broken and outcome is Outcome.DELIVERED:
            metrics.link_broke()
            # Its commit may have been sent twice, and the first one arrive yet: a new epoch makes it void.
            raise StartOverError
        return outcome

    def confirm(self) -> None:
        """Raise LeaseLostError when the lane is another's by now: what was found wrong with it may be that one's doing."""
        if self._lease is not None:
            self._lease.renew(self._connection.get())

    def stopped(self, reason: str | None, why: Why | None = None) -> None:
        """Show in `outbox.lane` why the lane stands still, None once it runs; if Postgres can be reached and the lane is ours."""
        if self._lease is not None:
            self._connection.get().execute(
                statement("publisher", "set_stopped"), self._lease.parameters | {"reason": reason, "why": why}
            )

    def discard(self) -> None:
        """Throw the producer away, whatever it was doing; the next `open` finds out what came of it."""
        self._condition.producer = None
        if self._open is not None:
            held, self._open = self._open, None
            held.discard()
        self._connection.discard()

    def close(self, *, keep_lease: bool = False) -> None:
        """Give the lease back, unless `keep_lease`, and disconnect. The lane can be opened again."""
        self.discard()
        held = self._connection.take()
        if held is not None:
            with held as connection:
                if self._lease is not None and not keep_lease:
                    self._lease.release(connection)
        self._lease = None

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
        self._link = Link()
        name = transactional_id(
            settings.publisher.transactional_id_prefix,
            self._shared.identity.outbox_uuid,
            self._epoch.epoch,
            self.lane,
        )
        batch_bytes = 1 if self._hunt.one_by_one else self._admission.batch_bytes
        producer = fencing_producer(settings, name, batch_bytes, self._shared.stop.is_set, self._link.logger)
        producer.poll(0)  # serves the log
        self._link.forget()
        return producer

    def _read_progress(self) -> Newest:
        shared = self._shared
        return newest_progress(
            shared.settings, shared.topics, shared.progress_topic, self._epoch, self.lane, shared.stop.is_set
        )

    def _decide(self, connection: psycopg.Connection[Any], newest: Newest) -> Position | None:
        row = connection.execute(statement("publisher", "lane_state"), self._held().parameters).fetchone()
        if row is None:
            raise LeaseLostError(
                f"lane {self.lane} of epoch {self._epoch.epoch} was taken over by another publisher"
            )
        check_later(newest.later, row[4])
        if row[5]:
            # A resume has set a lane of it back: its rows go out before any of this epoch, for the order of each key.
            return None
        record = newest.record
        mirror = Mirror(row[0], Cursor(row[1], row[2]), row[3])
        first = Cursor(self._epoch.from_batch - 1)
        at = (record.cursor if record is not None else first).batch_id
        commit_id = commit_id_at(connection, at)
        start = Position(0, first, commit_id)
        return decide(self._shared.identity, record, mirror, start, commit_id)

    def _record(self, connection: psycopg.Connection[Any], lease: Lease, unrecorded: Progress) -> None:
        if unrecorded.resumed is not None:
            known = parked_up_to(connection, unrecorded.epoch, unrecorded.lane, unrecorded.cursor)
            check_resumed_parked(unrecorded, known)
            record_resume(connection, lease, unrecorded)
            return
        check_parked(unrecorded, parked_within(connection, lease, unrecorded))
        record_delivery(connection, lease, unrecorded, unrecorded.after, None)

    def _put_aside(self, error: RecordRefusedError) -> None:
        """Park what Kafka refused, or find out what it was with smaller transactions."""
        if not self._hunt.one_by_one:
            self._hunt.refused(error.sent)
            return
        if not error.rows:
            raise LaneStoppedError(
                Why.RECORD_REFUSED,
                no_row_s_fault(error.code, str(error), self._shared.progress_topic),
                retry=True,
            )
        for (batch_id, session_key), found in error.rows.items():
            self._admission.park(self._connection.get(), self._held(), batch_id, session_key, found)

    def _held(self) -> Lease:
        if self._lease is None:
            raise LeaseLostError(f"lane {self.lane} is not held")
        return self._lease
