"""The heartbeat: it proves that the owner is alive (`Owner.is_alive`), and notices a takeover and the requests of commands."""

import threading
from collections.abc import Callable
from uuid import UUID

import psycopg
import structlog

from db.connection import connect, longest_wait_s
from db.statements import queries
from service.errors import UnavailableError, reason_of
from service.lifecycle.threads import supervised
from service.observability.loops import Loop
from service.settings import PostgresSettings
from spark_job.ledger import requests
from spark_job.ledger.requests import JobRequest
from spark_job.monitoring.health import JobHealth

_WRITER = queries("spark_job", "writer")

log = structlog.get_logger()


class OwnerHeartbeat:
    """A thread that renews the heartbeat on its own connection, and reports a takeover and what commands ask of this run."""

    def __init__(
        self,
        postgres: PostgresSettings,
        run_id: UUID,
        interval_s: float,
        *,
        on_fenced: Callable[[], None],
        on_request: Callable[[JobRequest], None],
        health: JobHealth,
    ) -> None:
        """`health` records each beat."""
        self._health = health
        self._postgres, self._run_id, self._interval_s = postgres, run_id, interval_s
        self._on_fenced, self._on_request = on_fenced, on_request
        self._stopped = threading.Event()
        self._thread = supervised(self._run, "heartbeat", self._stopped)

    def __enter__(self) -> "OwnerHeartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        within_s = self._interval_s + 2 * longest_wait_s(self._postgres)
        with self._health.loops.loop("heartbeat", within_s) as loop:
            self._keep_beating(loop)

    def _keep_beating(self, loop: Loop) -> None:
        while not self._stopped.is_set():
            loop.turn()
            try:
                self._beat(loop)
            except (UnavailableError, psycopg.Error) as error:
                # The sink fails if the server is unreachable; the heartbeat only logs it and tries again.
                log.warning("heartbeat_failed", error=type(error.__cause__ or error).__name__)
                self._health.heartbeat_failed(reason_of(error))
            self._stopped.wait(self._interval_s)

    def _beat(self, loop: Loop) -> None:
        with connect(self._postgres, "spark-job heartbeat", autocommit=True) as connection:
            while not self._stopped.is_set():
                loop.turn()
                beat = connection.execute(_WRITER["heartbeat"], {"run_id": self._run_id})
                self._health.heartbeat_written()
                if beat.rowcount == 0:
                    log.error("fenced", run=str(self._run_id))
                    self._on_fenced()
                    self._stopped.set()
                elif (request := requests.pending(connection, self._run_id)) is not None:
                    self._on_request(request)
                self._stopped.wait(self._interval_s)
