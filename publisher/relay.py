"""The publisher's whole flow: bind the outbox to Kafka, then run this process' share of the lanes, epoch after epoch.

A lane claims its lease, reads rows, produces them in one Kafka transaction, commits, and records the delivery (delivery/sender.py).
"""

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaException

from db.connection import connect
from db.migrate import require_current
from publisher.assignment import membership
from publisher.assignment.assignor import Assignment, assign, only_deliverable_by
from publisher.assignment.descriptors import ensure_descriptors
from publisher.assignment.heartbeat import ProcessHeartbeat
from publisher.assignment.lane_workers import LaneWorkers
from publisher.assignment.withdrawal import KafkaProbe, Withdrawal
from publisher.delivery.context import Context, Timelines
from publisher.delivery.handover import HandoverTurns, patience_s
from publisher.delivery.large_rows import LargeRows
from publisher.delivery.transaction import COMMIT_SLACK_S
from publisher.kafka import clients
from publisher.kafka.topics import Topics
from publisher.monitoring.delivery_log import DeliveryLog
from publisher.monitoring.health import ProcessHealth, longest_attempt_s, longest_turn_s
from publisher.outbox.identity import OutboxIdentity, bind, check_unchanged, name_outbox
from publisher.outbox.wakeup import Wakeup
from publisher.protocol.epochs import Epoch, LaneId
from publisher.protocol.history_check import Identity
from publisher.retention.delivery_pruning import DeliveryPruning
from service.errors import ContinuityError, ReadOnlyServerError, SettingsError, UnavailableError, reason_of
from service.kafka import client as kafka_client
from service.lifecycle.backoff import Backoff
from service.observability import tracing
from service.observability.loops import Loop
from service.settings import Settings

_log = structlog.get_logger()

Started = Callable[[OutboxIdentity, Epoch], None]

# The time for a lane to come to a transaction boundary. A little more than its transaction waits for Kafka (transaction.py), so that it
# ends in order where it can.
_GRACE_S = 12.0
_GOODBYE_S = 3.0
_SLICE_S = 0.1


class Relay:
    """This process' part in the delivery."""

    def __init__(
        self,
        settings: Settings,
        stop: threading.Event,
        started: Started = lambda *_: None,
        health: ProcessHealth | None = None,
    ) -> None:
        """`stop` ends `run` at the next transaction boundary; `started` is called with each epoch that begins here, `health` of
        everything else.
        """
        self._settings = settings
        self._health = health or ProcessHealth()
        self._stop = stop
        self._started = started
        self._wakeup = Wakeup(settings.postgres, stop, self._health.loops)
        self._changed = self._wakeup.subscribe_publishers()
        self._epoch: Epoch | None = None
        self._waiting = False
        self._unable: str | None = None
        self._alone_with: frozenset[LaneId] = frozenset()
        self._pruning = DeliveryPruning(settings.publisher.keep_deliveries_s)
        self._deliveries = DeliveryLog()
        self._withdrawal = Withdrawal(longest_attempt_s(settings))
        self._probe = KafkaProbe()
        self.abandoned = False
        """Whether lanes still waited for Kafka when `run` returned: the process that takes them over fences them and reads the outcome."""

    def run(self) -> None:
        """Deliver until `stop` is set.

        Raises ContinuityError when this outbox must not be published from here or every lane is stopped and no other
        process lives, SchemaError, SettingsError, UnavailableError.
        """
        clients.check_options(self._settings.kafka, self._settings.publisher.transaction_timeout_ms)
        context = self._start()
        if context is None:
            return
        workers = LaneWorkers(context, self._wakeup, self._changed, self._health)
        heartbeat = ProcessHeartbeat(context, self._health)
        self._wakeup.start()
        heartbeat.start()
        try:
            with self._health.loops.loop("main", longest_turn_s(self._settings)) as loop:
                self._work(context, workers, heartbeat, loop)
        finally:
            self._stop.set()
            self._health.stopping()
            self.abandoned = bool(workers.end(_GRACE_S))
            # After the lanes, because it gives back the leases that they still hold.
            heartbeat.end(_GOODBYE_S)
            self._wakeup.join(_GOODBYE_S)
            self._deliveries.flush(at_once=True)
            _log.info("publisher_stopped", abandoned=self.abandoned)

    def _start(self) -> Context | None:
        """Bind the outbox to Kafka. Waits for a Postgres that takes no writes; None where `stop` came first."""
        backoff = Backoff(least_s=0.1, most_s=10.0)
        while not self._stop.is_set():
            try:
                with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
                    require_current(connection)
                    return self._bind(connection)
            except (psycopg.errors.ReadOnlySqlTransaction, ReadOnlyServerError) as error:
                # A standby that is not promoted yet, or a server that its administrator has made read-only.
                self._retry_later(error, backoff)
                self._stop.wait(backoff.next())
            except UnavailableError:
                if not self._stop.is_set():
                    raise
        return None

    def _retry_later(self, error: Exception, backoff: Backoff) -> None:
        reason = reason_of(error)
        self._health.assignment_failed(reason)
        if backoff.failures == 0:
            _log.warning("retrying", reason=reason)

    def _bind(self, connection: psycopg.Connection[Any]) -> Context:
        settings = self._settings
        topics = Topics(
            kafka_client.admin_client(settings.kafka),
            timeout_s=settings.kafka.request_timeout_s,
            create=settings.publisher.create_topics,
            give_up=self._stop.is_set,
        )
        try:
            cluster_id = topics.cluster_id()
        except KafkaException as error:
            raise UnavailableError(kafka_client.no_answer(settings.kafka, error.args[0])) from error
        identity = bind(connection, cluster_id, settings.publisher.transactional_id_prefix)
        tracing.about(identity.outbox_uuid)
        timelines = Timelines(identity.timeline)
        timelines.notice(identity.server_timeline)
        return Context(
            settings=name_outbox(settings, identity.outbox_uuid),
            outbox=identity,
            timelines=timelines,
            identity=Identity(identity.outbox_uuid, cluster_id),
            topics=topics,
            progress_topic=f"{settings.publisher.progress_topic}-{identity.outbox_uuid}",
            holder=str(uuid.uuid4()),
            stop=self._stop,
            turns=HandoverTurns(patience_s(settings.publisher.lease_s)),
            large_rows=LargeRows(settings.publisher.transaction_timeout_ms / 1000 + COMMIT_SLACK_S),
            deliveries=self._deliveries,
        )

    def _work(self, context: Context, workers: LaneWorkers, heartbeat: ProcessHeartbeat, loop: Loop) -> None:
        """Run this process' share of the lanes until `stop`. Waits for a Postgres that is away; the lanes wait by themselves."""
        backoff = Backoff(least_s=0.1, most_s=10.0)
        while not self._stop.is_set():
            loop.turn()
            try:
                with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
                    context.timelines.notice(check_unchanged(connection, context.outbox).server_timeline)
                    while not self._stop.is_set():
                        loop.turn()
                        self.assign_lanes(connection, context, workers, heartbeat)
                        self._pruning.try_turn(connection)
                        backoff.reset()
                        self.wait(self._settings.publisher.poll_ms / 1000, workers, heartbeat)
            # InternalError: a standby that is not promoted yet takes no writes.
            except (psycopg.OperationalError, psycopg.InternalError, UnavailableError) as error:
                self._retry_later(error, backoff)
                # The living processes are no longer known.
                self._alone_with = frozenset()
                self.wait(backoff.next(), workers, heartbeat)

    def assign_lanes(
        self,
        connection: psycopg.Connection[Any],
        context: Context,
        workers: LaneWorkers,
        heartbeat: ProcessHeartbeat,
    ) -> None:
        """Read the assignment of lanes, and take, keep and give up lanes accordingly."""
        me = context.holder
        if workers.reap():
            # Its last lane may have ended the epoch: the others need not wait for their next poll to begin the new one.
            membership.wake_publishers(connection)
        self._alone_with = frozenset()
        view = membership.read_view(connection, me)
        epoch = view.epoch
        if epoch is None:
            self._health.assignment_read(has_epoch=False)
            self._wait_for_lanes()
            return
        if epoch != self._epoch:
            self._begin(connection, context, epoch)
            view = membership.read_view(connection, me)
            if view.epoch != epoch:
                return
        living = [process.process_id for process in view.living]
        assignment = assign(me, living, view.holders, rather_keep=workers.stalled_lanes(epoch))
        mine = {lane for lane, holder in view.holders.items() if holder == me}
        if not self._can_deliver(
            connection, context, epoch, view, heartbeat, stands_by=not mine and not assignment.claim
        ):
            assignment = Assignment((), tuple(mine) if self._withdrawal.reason else ())
        keep = mine - set(assignment.give_up)
        workers.leave(lane for lane in workers.lanes() if lane[0] != epoch.epoch or lane[1] not in keep)
        # A running worker gives its lane back itself, at a transaction boundary. Lanes without one are given back here.
        left = [lane for lane in assignment.give_up if (epoch.epoch, lane) not in workers.lanes()]
        if left:
            membership.release(connection, epoch, left, me)
        # A worker that hangs still has its lane; another one beside it would only fence it.
        claim = [lane for lane in assignment.claim if (epoch.epoch, lane) not in workers.lanes()]
        if claim:
            keep |= set(membership.claim(connection, epoch, claim, me, self._settings.publisher.lease_s))
        workers.start(epoch, sorted(keep - view.ended))
        unheld = {lane for lane, holder in view.holders.items() if holder is None}
        self._health.assignment_read(has_epoch=True, unheld=unheld - keep - view.ended)
        self._alone_with = frozenset(
            (epoch.epoch, lane) for lane in only_deliverable_by(me, living, view.holders, view.ended)
        )

    def _can_deliver(
        self,
        connection: psycopg.Connection[Any],
        context: Context,
        epoch: Epoch,
        view: membership.View,
        heartbeat: ProcessHeartbeat,
        *,
        stands_by: bool,
    ) -> bool:
        """Return whether this process may take lanes; if it leaves them to others, tell the others and `/healthz`.

        One that stands by counts among the living only while Kafka answers it, so that the others can rely on it.
        """
        me = context.holder
        others = {process.process_id for process in view.living} - {me}

        def no_answer() -> str | None:
            # By the brokers that a lane needs first: the leaders of the progress partitions.
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
                _log.warning("leaves_its_lanes_to_others", reason=reason)
        self._health.set_withdrawal(reason, cannot_deliver=self._withdrawal.reason is not None)
        heartbeat.take_lanes(reason is None and not heartbeat.hung)
        return reason is None

    def _begin(self, connection: psycopg.Connection[Any], context: Context, epoch: Epoch) -> None:
        """Start the epoch: every lane of the epoch before has ended, in any process."""
        self._check_descriptors(context, epoch)
        membership.add_lanes(connection, epoch)
        membership.release_other_epochs(connection, epoch, context.holder)
        try:
            self._started(context.outbox, epoch)
        except Exception as error:  # noqa: BLE001 - a terminal that is gone is no reason not to deliver
            _log.warning("start_not_reported", reason=str(error))
        self._epoch = epoch

    def _check_descriptors(self, context: Context, epoch: Epoch) -> None:
        try:
            ensure_descriptors(epoch.lanes, context.topics.brokers())
        except SettingsError as error:
            if self._epoch is None:
                raise
            # More lanes than before, while it delivers: it continues with those that it can run.
            _log.error("too_few_descriptors", reason=str(error))
        except KafkaException as error:
            _log.debug("descriptors_not_checked", reason=str(error))

    def _wait_for_lanes(self) -> None:
        if not self._waiting:
            self._waiting = True
            _log.info("waiting_for_lanes", reason="the job has not started yet: it makes the first lanes")

    def wait(self, seconds: float, workers: LaneWorkers, heartbeat: ProcessHeartbeat) -> None:
        """Wait for a notification, at most `seconds`. Raises what ends the process: a bug, another outbox, every lane being stopped.

        While another process lives, this one does not end because of its lanes: restarted, it would only make lanes move back and forth.
        """
        deadline = time.monotonic() + seconds
        while True:
            if heartbeat.failed is not None:
                raise heartbeat.failed
            workers.raise_bug()
            reasons = workers.stopped(self._alone_with)
            if reasons is not None:
                raise ContinuityError("no lane can continue.\n" + "\n".join(reasons))
            self._deliveries.flush()
            if self._stop.is_set() or time.monotonic() >= deadline or self._changed.wait(_SLICE_S):
                break
        self._changed.clear()
