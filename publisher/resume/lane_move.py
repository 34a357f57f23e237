"""Moves one lane for `publisher resume`, with the steps of publisher/delivery. The transaction carries no rows."""

from collections.abc import Callable
from typing import Any

from contract.progress import Progress, Totals, progress_key
from db import operations
from db.statements import queries
from publisher.assignment.membership import add_lanes
from publisher.delivery.context import Context
from publisher.delivery.sender import Connection, Sender
from publisher.delivery.transaction import ProgressRecord
from publisher.delivery.transaction_size import TransactionSize
from publisher.kafka.clients import batch_bytes
from publisher.kafka.fencing import fencing_producer
from publisher.lane.lane import lane_transactional_id
from publisher.outbox.deliveries import record_delivery, record_resume
from publisher.outbox.lease import Lease, LeaseLostError
from publisher.outbox.ledger import commit_id_at
from publisher.protocol.history_check import is_unrecorded
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.refusals import RecordRefusedError, no_row_s_fault
from publisher.protocol.stop_reasons import StoppedError, StopReason
from publisher.resume.planner import LanePlan, Planner, ResumePlan
from service.errors import ContinuityError
from service.lifecycle.fault_points import reach

_LEASES = queries("publisher", "leases")
_RESUMES = queries("publisher", "resumes")


class LaneMove:
    """Moves one lane, with the steps of the protocol (publisher/delivery):

    1. take the lease, even if another process holds it;
    2. fence the lane's publisher;
    3. and 4. read Kafka again, and plan again. If the plan has changed, ask a person, and begin again with step 1;
    5. mark the lane in Postgres, for retention, and send one progress record, whose number is above every known one;
    6. record the mirror and a delivery of kind `resume` in one statement, which removes the mark.
    """

    def __init__(
        self,
        context: Context,
        connection: Connection,
        planner: Planner,
        plan: ResumePlan,
        lane: LanePlan,
        moved_meanwhile: Callable[[LanePlan], bool],
    ) -> None:
        """`connection`: the command's own. `moved_meanwhile` is called if the lane no longer matches its plan; it returns whether to
        continue with the new plan.
        """
        publisher = context.settings.publisher
        timeout_ms = publisher.transaction_timeout_ms
        no_rows = TransactionSize(1, 1, timeout_ms / 1000)
        self._context = context
        self._connection = connection
        self._planner = planner
        self._plan = plan
        self._lane = lane
        self._epoch, self._number = lane.move.found.epoch.epoch, lane.move.found.lane
        self._moved_meanwhile = moved_meanwhile
        self._transactional_id = lane_transactional_id(context, self._epoch, self._number)
        self._sender = Sender(context, Outgoing(), "publisher resume", no_rows, timeout_ms)

    def run(self) -> LanePlan:
        """Move the lane; return the plan that was carried out.

        Raises ContinuityError if the lane has moved and the new plan was not accepted, LeaseLostError, StoppedError, KafkaException,
        psycopg.Error.
        """
        while True:
            reach("delivery.before_lease")
            lease = self._acquire()
            reach("delivery.after_lease")
            try:
                settled = self._move(lease)
            except ContinuityError:
                lease.release(self._connection)
                raise
            finally:
                self._sender.end(self._transactional_id)
            if settled:
                lease.release(self._connection)
                return self._lane
            # The person's answer may have taken longer than the lease: a publisher may have fenced this command and moved the lane.

    def _move(self, lease: Lease) -> bool:
        """Do steps 2 to 6; return False if a person had to be asked after step 4."""
        self._fence()
        reach("delivery.after_fencing")
        planned = self._planner.fenced(self._plan, self._lane)
        reach("delivery.after_progress")
        if planned is None:
            return True  # the lane has reached this position by itself
        announced, self._lane = self._lane, planned
        if not planned.same_as(announced):
            if not self._moved_meanwhile(planned):
                raise ContinuityError(
                    f"lane {self._number} of epoch {self._epoch} moved, and its new plan was declined. Run the command again"
                )
            return False
        reach("delivery.after_check")
        self._record_missing(lease)
        reach("delivery.after_filling")
        self._sender.begin(self._number)
        progress = self._progress()
        self._mark(lease)
        reach("delivery.after_read")
        self._send(progress)
        record_resume(self._connection, lease, progress)
        reach("delivery.after_record")
        return True

    def _acquire(self) -> Lease:
        settings = self._context.settings
        add_lanes(self._connection, self._lane.move.found.epoch)
        lease_s = max(settings.publisher.lease_s, 2 * settings.kafka.request_timeout_s)
        row = self._connection.execute(
            _LEASES["force"],
            {
                "epoch": self._epoch,
                "lane": self._number,
                "holder": self._context.holder,
                "lease_s": lease_s,
            },
        ).fetchone()
        if row is None:
            raise RuntimeError("the lane's row was inserted before")
        return Lease(self._epoch, self._number, row[0], lease_s)

    def _fence(self) -> None:
        context, settings = self._context, self._context.settings
        size = batch_bytes(settings.kafka)
        self._sender.fence(self._transactional_id, size)
        for stale in self._lane.move.found.later:
            # Fence the lanes of epochs that this ledger no longer has, so that no transaction of theirs can be committed later.
            fencing_producer(
                settings.kafka,
                context.topics,
                lane_transactional_id(context, *stale),
                settings.publisher.transaction_timeout_ms,
                size,
                context.give_up,
            ).purge()

    def _record_missing(self, lease: Lease) -> None:
        """Record a transaction that the fenced holder committed only in Kafka. No later step records it."""
        found = self._lane.move.found
        last = found.newest if found.newest is found.shared else None
        if last is None or not is_unrecorded(last, found.mirror.seq):
            return
        if last.resumed is not None:
            record_resume(self._connection, lease, last)
        else:
            record_delivery(self._connection, lease, last, last.after, None)

    def _progress(self) -> Progress:
        found, to = self._lane.move.found, self._lane.move.to
        known = found.newest.total if found.newest is not None else found.mirror_total
        parked = self._planner.survey(self._plan.binding).parked_up_to(self._epoch, self._number, to)
        return Progress(
            outbox_uuid=self._context.identity.outbox_uuid,
            cluster_id=self._context.identity.cluster_id,
            epoch=self._epoch,
            lane=self._number,
            seq=found.known_seq + 1,
            after=self._lane.move.delivered,
            cursor=to,
            commit_id=None if to.batch_id == 0 else commit_id_at(self._connection, to.batch_id),
            sessions=0,
            events=0,
            total=Totals(
                max(known.sessions, found.mirror_total.sessions),
                max(known.events, found.mirror_total.events),
                parked,
            ),
            resumed=str(self._plan.request),
        )

    def _mark(self, lease: Lease) -> None:
        """Mark the lane as resuming.

        The lane may move back in Kafka before the mirror does. Without the mark, retention would trust the mirror.
        """
        reason = (
            f"{StopReason.RESUMING}: `publisher resume {self._plan.request}` was moving this lane to {self._lane.move.to} and was "
            "interrupted. Run it again, or start `publisher run`, which continues from the position in Kafka"
        )
        with self._connection.transaction():
            marked = self._connection.execute(_RESUMES["mark_lane"], lease.parameters | {"reason": reason})
            if marked.rowcount != 1:
                raise LeaseLostError(f"lane {self._number} was taken over by another publisher")
            # Before Kafka's commit, so that no lane is moved in Kafka without its row in the operator log.
            operations.record(
                self._connection, "publisher resume", self._plan.request.asked(), self._outcome()
            )

    def _outcome(self) -> dict[str, Any]:
        (again, skipped), to = (self._lane.again, self._lane.skipped), self._lane.move.to
        return {
            "epoch": self._epoch,
            "lane": self._number,
            "after_batch": to.batch_id,
            "events_again": again[1],
            "events_skipped": skipped[1],
        }

    def _send(self, progress: Progress) -> None:
        """Send the progress record, and in the same transaction tombstones for the progress records of stale epochs."""
        topic = self._context.progress_topic
        stale = [
            ProgressRecord(topic, None, progress_key(epoch, lane), lane)
            for epoch, lane in self._lane.move.found.later
        ]
        try:
            self._sender.send(
                [], [*stale, ProgressRecord(topic, progress.encode(), progress.key(), progress.lane)]
            )
        except RecordRefusedError as error:
            text = no_row_s_fault(error.code, str(error), topic)
            raise StoppedError(StopReason.RECORD_REFUSED, text) from error
