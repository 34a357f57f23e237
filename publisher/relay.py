"""The publisher's whole flow: bind the outbox to Kafka, then for each epoch run its lanes.

A lane claims its lease, reads rows, produces them in one Kafka transaction, commits, and records the delivery (lane.py).
"""

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaException

from db.connection import connect
from db.errors import ContinuityError, UnavailableError
from db.migrate import require_current
from db.settings import Settings
from db.statements import statement
from publisher import clients
from publisher.backoff import Backoff
from publisher.checks import Identity
from publisher.identity import OutboxIdentity, bind, check_unchanged
from publisher.lane import Lane
from publisher.shared import Epoch, Shared, Timelines
from publisher.topics import Topics
from publisher.wakeup import Wakeup
from publisher.worker import Worker

_log = structlog.get_logger()

Started = Callable[[OutboxIdentity, Epoch], None]


class Relay:
    """All lanes of this process."""

    def __init__(self, settings: Settings, stop: threading.Event, started: Started = lambda *_: None) -> None:
        """`stop` ends `run` at the next transaction boundary; `started` is told of each epoch that begins here."""
        self._settings = settings
        self._stop = stop
        self._started = started
        self._wakeup = Wakeup(settings.postgres, stop)

    def run(self) -> None:
        """Deliver until `stop` is set.

        Raises ContinuityError when this outbox must not be published from here or every lane stopped,
        SchemaError, SettingsError, UnavailableError.
        """
        clients.check_options(self._settings.kafka, self._settings.publisher.transaction_timeout_ms)
        try:
            with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
                require_current(connection)
                shared = self._bind(connection)
        except UnavailableError:
            if self._stop.is_set():
                return
            raise
        self._wakeup.start()
        try:
            while (epoch := self._next_epoch(shared)) is not None:
                self._report(shared, epoch)
                self._run_epoch(shared, epoch)
        finally:
            self._stop.set()
            self._wakeup.join()

    def _bind(self, connection: psycopg.Connection[Any]) -> Shared:
        settings = self._settings
        complaints = clients.Complaints()
        admin = clients.admin_client(settings.kafka, complaints)
        topics = Topics(
            admin,
            timeout_s=settings.kafka.request_timeout_s,
            create=settings.publisher.create_topics,
            give_up=self._stop.is_set,
        )
        try:
            cluster_id = topics.cluster_id()
        except KafkaException as error:
            admin.poll(0)
            raise UnavailableError(clients.no_answer(settings.kafka, error.args[0], complaints)) from error
        identity = bind(connection, cluster_id, settings.publisher.transactional_id_prefix)
        timelines = Timelines(identity.timeline)
        timelines.notice(identity.server_timeline)
        return Shared(
            settings=settings,
            outbox=identity,
            timelines=timelines,
            identity=Identity(identity.outbox_uuid, cluster_id),
            topics=topics,
            progress_topic=f"{settings.publisher.progress_topic}-{identity.outbox_uuid}",
            holder=f"{socket.gethostname()}:{os.getpid()}",
            stop=self._stop,
        )

    def _report(self, shared: Shared, epoch: Epoch) -> None:
        try:
            self._started(shared.outbox, epoch)
        except Exception as error:  # noqa: BLE001 - a terminal that is gone is no reason not to deliver
            _log.warning("start_not_reported", reason=str(error))

    def _next_epoch(self, shared: Shared) -> Epoch | None:
        """Return the oldest epoch that is not through, waiting for the job to make the first; None once stopped.

        Waits for a Postgres that is away. Raises LaneStoppedError when the one that comes back is another.
        """
        backoff = Backoff(least_s=0.1, most_s=10.0)
        wake = self._wakeup.subscribe()
        try:
            while not self._stop.is_set():
                try:
                    with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
                        shared.timelines.notice(check_unchanged(connection, shared.outbox).server_timeline)
                        return self._wait_for_epoch(connection, wake)
                # InternalError: a standby that is not promoted yet takes no writes.
                except (psycopg.OperationalError, psycopg.InternalError, UnavailableError) as error:
                    if backoff.failures == 0:
                        _log.warning("retrying", reason=str(error).strip())
                    self._stop.wait(backoff.next())
            return None
        finally:
            self._wakeup.unsubscribe(wake)

    def _wait_for_epoch(self, connection: psycopg.Connection[Any], wake: threading.Event) -> Epoch | None:
        waiting = False
        while not self._stop.is_set():
            row = connection.execute(statement("publisher", "current_epoch")).fetchone()
            if row is not None:
                epoch = Epoch(*row)
                connection.execute(
                    statement("publisher", "add_lanes"), {"epoch": epoch.epoch, "lanes": epoch.lanes}
                )
                return epoch
            if not waiting:
                waiting = True
                _log.info("waiting_for_lanes", reason="the job has not started yet: it makes the first lanes")
            wake.wait(self._settings.publisher.poll_ms / 1000)
            wake.clear()
        return None

    def _run_epoch(self, shared: Shared, epoch: Epoch) -> None:
        """Run every lane of an epoch until all have come to its end."""
        workers = [
            Worker(
                Lane(shared, epoch, lane),
                self._stop,
                self._wakeup.subscribe(),
                self._settings.publisher.poll_ms / 1000,
            )
            for lane in range(epoch.lanes)
        ]
        threads = [threading.Thread(target=worker.run, name=f"lane-{worker.lane}") for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                if any(worker.bug for worker in workers):
                    self._stop.set()
                if self._stop.is_set():
                    # Sleeping lanes see the stop at once instead of at their next poll.
                    self._wakeup.wake_all()
        for worker in workers:
            if worker.bug is not None:
                raise worker.bug
        stopped = [
            f"lane {worker.lane}: {worker.stopped}" for worker in workers if worker.stopped is not None
        ]
        if stopped and not self._stop.is_set():
            raise ContinuityError("no lane can go on.\n" + "\n".join(stopped))
