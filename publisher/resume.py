"""Moves lanes on request: the way out when Kafka and Postgres no longer tell one history.

The plan (resume_planning.py) changed nothing. `act` then does for each lane what a publisher's transaction does:
1. take the lease, from whoever has it; 2. fence the lane's publisher; 3. read Kafka again; 4. mark the lane in Postgres, for retention,
and one progress record in a Kafka transaction, numbered beyond everything that is known; 5. the mirror and a delivery of kind `resume`,
in one statement, which takes the mark away.
A crash anywhere leaves a lane that either is as it was or goes on from the record; giving the command again is always right.
"""

import os
import socket
from collections.abc import Callable
from typing import Any

import psycopg
from confluent_kafka import Producer

from db.errors import ContinuityError, FencedError
from db.fault_points import reach
from db.settings import Settings
from db.statements import statement
from publisher.checks import Why
from publisher.cursor import Cursor
from publisher.deliveries import commit_id_at, record_delivery, record_resume
from publisher.lease import Lease, LeaseLostError
from publisher.progress import Progress, Totals, progress_key
from publisher.rebinding import Binding, rebind
from publisher.resume_plan import Found
from publisher.resume_planning import LanePlan, Plan, Planner
from publisher.resume_survey import Survey
from publisher.retention.hold_off import hold_off_retention
from publisher.shared import Epoch
from publisher.sharing import add_lanes, wake_publishers
from publisher.takeover import fencing_producer, transactional_id
from publisher.topics import Topics


class Resume:
    """One use of the command."""

    def __init__(self, connection: psycopg.Connection[Any], settings: Settings, topics: Topics) -> None:
        self._connection = connection
        self._settings = settings
        self._topics = topics
        self._planner = Planner(connection, settings, topics)
        self._holder = f"{socket.gethostname()}:{os.getpid()} (resume)"

    def act(
        self, plan: Plan, moved_meanwhile: Callable[[LanePlan], bool], done: Callable[[LanePlan], None]
    ) -> None:
        """Do it. `moved_meanwhile` is asked when a lane is no longer as it was planned: whether to go on with the new plan.

        Raises ContinuityError where it says no, FencedError while another resume is at work, LeaseLostError when a publisher took a
        lane over, and as `plan`.
        """
        self._alone()
        hold_off_retention(self._connection)
        if plan.lanes:
            self._topics.ensure_progress(
                self._planner.survey(plan.binding).progress_topic,
                max(of.epoch.lanes for of in plan.ledger.epochs),
                self._settings.publisher.progress_replication,
                create=True,
            )
        for lane in plan.lanes:
            done(self._move(plan, lane, moved_meanwhile))
        reach("resume.before_binding")
        if plan.binding.changed:
            rebind(self._connection, plan.binding)
        # A publisher that looks at stopped lanes only now and then looks now.
        wake_publishers(self._connection)

    def _alone(self) -> None:
        """Let no second resume act until this connection ends: each would take the other's lanes and record its own binding."""
        try:
            # It waits, because the connection of one that died just now may still be there.
            self._connection.execute(statement("publisher", "resume_lock"))
        except psycopg.errors.LockNotAvailable as error:
            raise FencedError(
                "another `publisher resume` is at work on this outbox. Nothing was done; give the command again when it is through"
            ) from error

    def _move(self, plan: Plan, lane: LanePlan, moved_meanwhile: Callable[[LanePlan], bool]) -> LanePlan:
        found = lane.move.found
        epoch = found.epoch
        add_lanes(self._connection, epoch)
        lease = self._take_lease(epoch, found.lane)
        reach("resume.after_lease")
        producer = self._fence(plan.binding, epoch.epoch, found.lane)
        for stale in found.later:
            # What a lane epoch that this ledger no longer has left behind must not come back.
            self._fence(plan.binding, *stale).purge()
        reach("resume.after_fencing")
        try:
            planned = self._planner.fenced(plan, lane)
        except ContinuityError:
            lease.release(self._connection)
            raise
        if planned is None:
            lease.release(self._connection)
            return lane
        if not planned.same_as(lane) and not moved_meanwhile(planned):
            lease.release(self._connection)
            raise ContinuityError(
                f"lane {found.lane} of epoch {epoch.epoch} moved on while you were asked. Give the command again"
            )
        self._fill(lease, planned.move.found)
        survey = self._planner.survey(plan.binding, fenced=True)
        progress = self._progress(plan, survey, planned)
        self._mark(lease, plan, planned)
        self._commit(producer, survey.progress_topic, progress, planned.move.found)
        reach("resume.after_commit")
        record_resume(self._connection, lease, progress)
        reach("resume.after_record")
        lease.release(self._connection)
        return planned

    def _mark(self, lease: Lease, plan: Plan, lane: LanePlan) -> None:
        """Write down that the lane may be set back from now on: until the mirror is, too, retention would trust the mirror."""
        reason = (
            f"{Why.RESUMING}: `publisher resume {plan.request}` was to let this lane go on after {lane.move.to} and did not end. Give it "
            "again, or start `publisher run`, which goes on from where that came"
        )
        marked = self._connection.execute(
            statement("publisher", "mark_resume"), lease.parameters | {"reason": reason}
        )
        if marked.rowcount != 1:
            raise LeaseLostError(f"lane {lane.move.found.lane} was taken over by another publisher")

    def _fill(self, lease: Lease, found: Found) -> None:
        """Record the transaction between whose two commits the fenced publisher was; nobody would later."""
        newest = found.newest
        if newest is None or newest is not found.shared or newest.seq != found.mirror.seq + 1:
            return
        if newest.resumed is not None:
            record_resume(self._connection, lease, newest)
        else:
            record_delivery(self._connection, lease, newest, newest.after, None)

    def _take_lease(self, epoch: Epoch, lane: int) -> Lease:
        lease_s = max(self._settings.publisher.lease_s, 2 * self._settings.kafka.request_timeout_s)
        row = self._connection.execute(
            statement("publisher", "force_lease"),
            {"epoch": epoch.epoch, "lane": lane, "holder": self._holder, "lease_s": lease_s},
        ).fetchone()
        if row is None:
            raise RuntimeError("the lane's row was inserted before")
        return Lease(epoch.epoch, lane, row[0], lease_s)

    def _fence(self, binding: Binding, epoch: int, lane: int) -> Producer:
        name = transactional_id(binding.prefix, binding.found.outbox_uuid, epoch, lane)
        return fencing_producer(self._settings, name, None, lambda: False)

    def _progress(self, plan: Plan, survey: Survey, lane: LanePlan) -> Progress:
        found, to = lane.move.found, lane.move.to
        known = found.newest.total if found.newest is not None else found.mirror_total
        return Progress(
            outbox_uuid=plan.binding.found.outbox_uuid,
            cluster_id=plan.binding.cluster_id,
            epoch=found.epoch.epoch,
            lane=found.lane,
            seq=found.known_seq + 1,
            after=lane.move.delivered,
            cursor=to,
            commit_id=self._commit_id(to),
            sessions=0,
            events=0,
            total=Totals(
                max(known.sessions, found.mirror_total.sessions),
                max(known.events, found.mirror_total.events),
                survey.parked_up_to(found.epoch.epoch, found.lane, to),
            ),
            resumed=str(plan.request),
        )

    def _commit_id(self, to: Cursor) -> Any:
        return None if to.batch_id == 0 else commit_id_at(self._connection, to.batch_id)

    def _commit(self, producer: Producer, topic: str, progress: Progress, found: Found) -> None:
        producer.begin_transaction()
        for epoch, lane in found.later:
            producer.produce(topic, None, progress_key(epoch, lane), lane)
        producer.produce(topic, progress.encode(), progress.key(), progress.lane)
        producer.flush()
        reach("resume.before_commit")
        producer.commit_transaction()
