"""The publisher's whole flow: bind the outbox to Kafka, then run this process' share of the lanes, epoch after epoch.

A lane claims its lease, reads rows, produces them in one Kafka transaction, commits, and records the delivery (delivery/sender.py).
"""

import threading
import time
import uuid
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaException

from contract.progress import progress_topic
from db.connection import connect
from db.migrate import require_current
from publisher.assignment.heartbeat import ProcessHeartbeat
from publisher.assignment.lane_share import LaneShare, Started
from publisher.assignment.lane_workers import LaneWorkers
from publisher.delivery.context import Context, Timelines
from publisher.delivery.handover import HandoverTurns, patience_s
from publisher.delivery.large_row_turns import LargeRowTurns
from publisher.delivery.transaction import COMMIT_SLACK_S
from publisher.kafka import clients
from publisher.kafka.topics import Topics
from publisher.monitoring.delivery_log import DeliveryLog
from publisher.monitoring.health import ProcessHealth, longest_turn_s
from publisher.outbox.identity import bind, check_unchanged, name_outbox
from publisher.outbox.wakeup import Wakeup
from publisher.protocol.history_check import Identity
from publisher.retention.delivery_pruning import DeliveryPruning
from service.errors import ReadOnlyServerError, UnavailableError, reason_of
from service.kafka import client as kafka_client
from service.lifecycle.backoff import Backoff
from service.observability import tracing
from service.observability.loops import Loop
from service.settings import Settings

_log = structlog.get_logger()

# How long a stop waits for lanes to reach a transaction boundary: a little longer than a transaction waits for Kafka (transaction.py), so
# that transactions end in order if they can.
_GRACE_S = 12.0
_GOODBYE_S = 3.0
_SLICE_S = 0.1


class Relay:
    """This process' part in the delivery, from the start to the last lane."""

    def __init__(
        self,
        settings: Settings,
        stop: threading.Event,
        started: Started = lambda *_: None,
        health: ProcessHealth | None = None,
    ) -> None:
        """`stop` ends `run` at the next transaction boundary. `started` is called with each epoch that begins here; `health` receives the
        state of the process and its lanes.
        """
        self._settings = settings
        self._health = health or ProcessHealth()
        self._stop = stop
        self._started = started
        self._wakeup = Wakeup(settings.postgres, stop, self._health.loops)
        self._changed = self._wakeup.subscribe_publishers()
        self._pruning = DeliveryPruning(settings.publisher.keep_deliveries_s)
        self._deliveries = DeliveryLog()
        self.abandoned = False
        """Whether some lanes were not given up when `run` returned. The process that takes them over fences them and reads the outcome."""

    def run(self) -> None:
        """Deliver until `stop` is set.

        Raises ContinuityError if this outbox must not be published from here, or if every lane is stopped and no other process lives
        (`LaneShare.check`); SchemaError, SettingsError, UnavailableError.
        """
        clients.check_options(self._settings.kafka, self._settings.publisher.transaction_timeout_ms)
        context = self._start()
        if context is None:
            return
        workers = LaneWorkers(context, self._wakeup, self._changed, self._health)
        heartbeat = ProcessHeartbeat(context, self._health)
        share = LaneShare(context, workers, heartbeat, self._health, self._started)
        self._wakeup.start()
        heartbeat.start()
        try:
            with self._health.loops.loop("main", longest_turn_s(self._settings)) as loop:
                self._work(context, share, loop)
        finally:
            self._stop.set()
            self._health.stopping()
            self.abandoned = bool(workers.end(_GRACE_S))
            # After the lanes have ended, because it gives back the leases that they still hold.
            heartbeat.end(_GOODBYE_S)
            self._wakeup.join(_GOODBYE_S)
            self._deliveries.flush(at_once=True)
            _log.info("publisher_stopped", abandoned=self.abandoned)

    def _start(self) -> Context | None:
        """Bind the outbox to Kafka. Waits while Postgres refuses writes; returns None if `stop` is set first."""
        backoff = Backoff(least_s=0.1, most_s=10.0)
        while not self._stop.is_set():
            try:
                with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
                    require_current(connection)
                    return self._bind(connection)
            except (psycopg.errors.ReadOnlySqlTransaction, ReadOnlyServerError) as error:
                # The server is a standby that is not promoted yet, or its administrator has made it read-only.
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
            raise kafka_client.failure_of(settings.kafka, error) from error
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
            progress_topic=progress_topic(settings.publisher.progress_topic, identity.outbox_uuid),
            holder=str(uuid.uuid4()),
            stop=self._stop,
            turns=HandoverTurns(patience_s(settings.publisher.lease_s)),
            large_row_turns=LargeRowTurns(settings.publisher.transaction_timeout_ms / 1000 + COMMIT_SLACK_S),
            deliveries=self._deliveries,
        )

    def _work(self, context: Context, share: LaneShare, loop: Loop) -> None:
        """Run this process' share of the lanes until `stop`. Waits while Postgres does not answer; the lanes wait by themselves."""
        backoff = Backoff(least_s=0.1, most_s=10.0)
        while not self._stop.is_set():
            loop.turn()
            try:
                with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
                    context.timelines.notice(check_unchanged(connection, context.outbox).server_timeline)
                    while not self._stop.is_set():
                        loop.turn()
                        share.update(connection)
                        self._pruning.try_turn(connection)
                        backoff.reset()
                        self._wait(self._settings.publisher.poll_ms / 1000, share)
            # InternalError: the server is a standby that is not promoted yet and refuses writes.
            except (psycopg.OperationalError, psycopg.InternalError, UnavailableError) as error:
                self._retry_later(error, backoff)
                share.forget()
                self._wait(backoff.next(), share)

    def _wait(self, seconds: float, share: LaneShare) -> None:
        """Wait at most `seconds` for a notification or `stop`. Raises as `LaneShare.check`."""
        deadline = time.monotonic() + seconds
        while True:
            share.check()
            self._deliveries.flush()
            if self._stop.is_set() or time.monotonic() >= deadline or self._changed.wait(_SLICE_S):
                break
        self._changed.clear()
