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
from publisher.checks import Identity
from publisher.identity import OutboxIdentity, bind
from publisher.lane import Lane
from publisher.shared import Epoch, Shared
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
        SchemaError, UnavailableError.
        """
        with connect(self._settings.postgres, "publisher", autocommit=True) as connection:
            require_current(connection)
            shared, identity = self._bind(connection)
            self._wakeup.start()
            try:
                while (epoch := self._next_epoch(connection)) is not None:
                    self._started(identity, epoch)
                    self._run_epoch(shared, epoch)
            finally:
                self._stop.set()
                self._wakeup.join()

    def _bind(self, connection: psycopg.Connection[Any]) -> tuple[Shared, OutboxIdentity]:
        settings = self._settings
        topics = Topics(
            clients.admin_client(settings.kafka),
            timeout_s=settings.kafka.request_timeout_s,
            create=settings.publisher.create_topics,
            give_up=self._stop.is_set,
        )
        try:
            cluster_id = topics.cluster_id()
        except KafkaException as error:
            raise UnavailableError(
                f"Kafka at {settings.kafka.bootstrap_servers} does not answer: {error.args[0].str()}. Check [kafka] "
                "bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS); `devstack status` shows a local one"
            ) from error
        identity = bind(connection, cluster_id, settings.publisher.transactional_id_prefix)
        if identity.timeline != identity.server_timeline:
            # Each lane proves by its commit ids that nothing delivered was lost in it.
            _log.warning("postgres_promoted", recorded=identity.timeline, now=identity.server_timeline)
        shared = Shared(
            settings=settings,
            identity=Identity(identity.outbox_uuid, cluster_id),
            topics=topics,
            progress_topic=f"{settings.publisher.progress_topic}-{identity.outbox_uuid}",
            holder=f"{socket.gethostname()}:{os.getpid()}",
            stop=self._stop,
        )
        return shared, identity

    def _next_epoch(self, connection: psycopg.Connection[Any]) -> Epoch | None:
        """Return the oldest epoch that is not through, waiting for the job to make the first; None once stopped."""
        wake = self._wakeup.subscribe()
        waiting = False
        while not self._stop.is_set():
            row = connection.execute(statement("publisher", "current_epoch")).fetchone()
            if row is not None:
                epoch = Epoch(*row)
                connection.execute(
                    statement("publisher", "add_lanes"), {"epoch": epoch.epoch, "lanes": epoch.lanes}
                )
                self._wakeup.unsubscribe(wake)
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
