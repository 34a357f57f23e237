"""Takes, keeps and gives up lanes in this process. Each call reads the assignment of the lanes and follows it."""

from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaException

from publisher.assignment import membership
from publisher.assignment.assignor import Assignment, assign, only_deliverable_by
from publisher.assignment.descriptors import ensure_descriptors
from publisher.assignment.heartbeat import ProcessHeartbeat
from publisher.assignment.lane_workers import LaneWorkers
from publisher.assignment.membership import View
from publisher.assignment.withdrawal import KafkaProbe, Withdrawal
from publisher.delivery.context import Context
from publisher.monitoring.health import ProcessHealth, longest_attempt_s
from publisher.outbox.identity import OutboxIdentity
from publisher.protocol.epochs import Epoch, LaneId
from service.errors import ContinuityError, SettingsError

_log = structlog.get_logger()

Started = Callable[[OutboxIdentity, Epoch], None]


class LaneShare:
    """This process' share of the lanes, epoch after epoch. Not thread-safe: used by the main loop only."""

    def __init__(
        self,
        context: Context,
        workers: LaneWorkers,
        heartbeat: ProcessHeartbeat,
        health: ProcessHealth,
        started: Started = lambda *_: None,
    ) -> None:
        """`started` is called with each epoch that begins in this process; `health` notes each reading of the assignment."""
        self._context = context
        self._workers = workers
        self._heartbeat = heartbeat
        self._health = health
        self._started = started
        self._epoch: Epoch | None = None
        self._waiting = False
        self._unable: str | None = None
        self._alone_with: frozenset[LaneId] = frozenset()
        self._withdrawal = Withdrawal(longest_attempt_s(context.settings))
        self._probe = KafkaProbe()

    def update(self, connection: psycopg.Connection[Any]) -> None:
        """Read the assignment of lanes, and take, keep and give up lanes accordingly. Raises psycopg.Error, SettingsError."""
        context, workers, me = self._context, self._workers, self._context.holder
        if workers.reap():
            # A lane that ended here may have been the epoch's last. Other processes begin the next epoch now, not at their next poll.
            membership.wake_publishers(connection)
        self._alone_with = frozenset()
        view = membership.read_view(connection, me)
        epoch = view.epoch
        if epoch is None:
            self._health.assignment_read(has_epoch=False)
            self._wait_for_lanes()
            return
        if epoch != self._epoch:
            self._begin(connection, epoch)
            view = membership.read_view(connection, me)
            if view.epoch != epoch:
                return
        living = [process.process_id for process in view.living]
        assignment = assign(me, living, view.holders, rather_keep=workers.stopped_lanes(epoch))
        mine = {lane for lane, holder in view.holders.items() if holder == me}
        if not self._can_deliver(connection, epoch, view, stands_by=not mine and not assignment.claim):
            assignment = Assignment((), tuple(mine) if self._withdrawal.reason else ())
        keep = mine - set(assignment.give_up)
        workers.leave(lane for lane in workers.lanes() if lane[0] != epoch.epoch or lane[1] not in keep)
        # A running worker gives its lane back itself, at a transaction boundary. Lanes without a worker are given back here.
        left = [lane for lane in assignment.give_up if (epoch.epoch, lane) not in workers.lanes()]
        if left:
            membership.release(connection, epoch, left, me)
        # A worker that hangs still has its lane. A second worker on the same lane would only fence the first.
        claim = [lane for lane in assignment.claim if (epoch.epoch, lane) not in workers.lanes()]
        if claim:
            keep |= set(membership.claim(connection, epoch, claim, me, context.settings.publisher.lease_s))
        workers.start(epoch, sorted(keep - view.ended))
        unheld = {lane for lane, holder in view.holders.items() if holder is None}
        self._health.assignment_read(has_epoch=True, unheld=unheld - keep - view.ended)
        self._alone_with = frozenset(
            (epoch.epoch, lane) for lane in only_deliverable_by(me, living, view.holders, view.ended)
        )

    def forget(self) -> None:
        """Forget which processes live, because Postgres does not answer."""
        self._alone_with = frozenset()

    def check(self) -> None:
        """Raise the error that ends the process: a bug, another outbox, or every lane being stopped.

        Stopped lanes do not end this process while another one lives: a restart would only make lanes move back and forth.
        """
        if self._heartbeat.failed is not None:
            raise self._heartbeat.failed
        self._workers.raise_bug()
        reasons = self._workers.stopped(self._alone_with)
        if reasons is not None:
            raise ContinuityError("no lane can continue.\n" + "\n".join(reasons))

    def _can_deliver(
        self, connection: psycopg.Connection[Any], epoch: Epoch, view: View, *, stands_by: bool
    ) -> bool:
        """Return whether this process may take lanes. If it may not, tell the other processes and `/healthz`.

        A process that stands by counts among the living only while Kafka answers it, so that the others can rely on it.
        """
        context, me = self._context, self._context.holder
        others = {process.process_id for process in view.living} - {me}

        def no_answer() -> str | None:
            # Asks the leaders of the progress partitions, the brokers that a lane needs first.
            return self._probe.failure(
                lambda: context.topics.ends(context.progress_topic, range(epoch.lanes), committed=True)
            )

        self._withdrawal.look(
            self._health.snapshot().lanes,
            others=bool(others),
            delivered_s_ago=lambda: membership.others_delivered_s_ago(connection, epoch, me),
            only_others_reach_kafka=lambda: (
                bool(others - set(view.holders.values())) and no_answer() is not None
            ),
        )
        reason = context.turns.stuck or self._withdrawal.reason
        if reason is None and stands_by and others:
            reason = no_answer()
        if reason != self._unable:
            self._unable = reason
            if reason is None:
                _log.info("takes_lanes_again")
            else:
                _log.warning("does_not_take_lanes", reason=reason)
        self._health.set_withdrawal(reason, cannot_deliver=self._withdrawal.reason is not None)
        self._heartbeat.take_lanes(reason is None and not self._heartbeat.hung)
        return reason is None

    def _begin(self, connection: psycopg.Connection[Any], epoch: Epoch) -> None:
        """Start the epoch. Every lane of the previous epoch has ended, whichever process ran it."""
        self._check_descriptors(epoch)
        membership.add_lanes(connection, epoch)
        membership.release_other_epochs(connection, epoch, self._context.holder)
        try:
            self._started(self._context.outbox, epoch)
        except Exception as error:  # noqa: BLE001 - a terminal that is gone is no reason not to deliver
            _log.warning("start_not_reported", reason=str(error))
        self._epoch = epoch

    def _check_descriptors(self, epoch: Epoch) -> None:
        try:
            ensure_descriptors(epoch.lanes, self._context.topics.brokers())
        except SettingsError as error:
            if self._epoch is None:
                raise
            # The lane count was raised while this process delivers: it continues with the lanes that its descriptors suffice for.
            _log.error("too_few_descriptors", reason=str(error))
        except KafkaException as error:
            _log.debug("descriptors_not_checked", reason=str(error))

    def _wait_for_lanes(self) -> None:
        if not self._waiting:
            self._waiting = True
            _log.info("waiting_for_lanes", reason="the job has not started yet: it makes the first lanes")
