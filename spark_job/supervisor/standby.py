"""A hot standby: Spark runs and is warm, and this process waits until no other run owns the outbox.

A cold start spends nearly all its time on loading Python, the JVM and code that is compiled for the first time. A standby has all of it
loaded when the owner dies: only the start's transaction and the first batch remain. A standby owns nothing, writes nothing, and reads one
row twice a second.
ledger/ownership.py decides whether the owner is alive (`Owner.is_alive`) and takes the outbox over (`take_over`).
"""

import threading
from collections.abc import Collection
from uuid import UUID

import psycopg
import structlog
from pyspark.sql import SparkSession

from db.connection import Connection, connect
from db.migrate import require_current
from service.errors import WRONG_AT_THE_START, SparkLostError, UnavailableError
from service.settings import Settings
from spark_job.failures.explain import explained
from spark_job.ledger.ownership import Owner, read_owner
from spark_job.monitoring.health import JobHealth
from spark_job.spark.lazy_session import LazySession
from spark_job.stream.warm_up import warm_up

log = structlog.get_logger()

_POLL_S = 0.5


class Standby:
    """Waits before each attempt of a job that was started with `--standby`."""

    def __init__(
        self, settings: Settings, spark: LazySession, stop: threading.Event, health: JobHealth
    ) -> None:
        """`stop`: set from outside, ends the wait. `health` records the wait."""
        self._settings = settings
        self._spark = spark
        self._stop = stop
        self._health = health
        self._warm: SparkSession | None = None

    def wait(self, own: Collection[UUID]) -> bool:
        """Return True once no other process owns the outbox; False if `stop` is set first. `own`: the runs of this process.

        Raises what `LazySession.get` raises; SchemaError if the schema is not this release's; SparkLostError if the JVM is gone and belongs
        to spark-submit; one of WRONG_AT_THE_START if no connection of this process was ever made. While Postgres is unreachable, `wait`
        tries again: no run can work without it.
        """
        has_connected = len(own) > 1  # an earlier run of this process used this database
        while not self._stop.is_set():
            try:
                with connect(self._settings.postgres, "spark-job", autocommit=True) as connection:
                    require_current(connection)
                    has_connected = True
                    return self._wait(connection, own)
            except (UnavailableError, psycopg.OperationalError) as error:
                if isinstance(error, WRONG_AT_THE_START) and not has_connected:
                    raise
                log.warning("standby_without_postgres", because=" ".join(str(error).split()))
                self._health.owner_unknown(
                    "cannot find out which run owns the outbox: Postgres is unreachable"
                )
                self._stop.wait(self._settings.job.heartbeat_s)
        return False

    def _wait(self, connection: Connection, own: Collection[UUID]) -> bool:
        waited = False
        while (owner := self._living_owner(connection, own)) is not None:
            who = f"run {owner.run_id} (pid {owner.pid} on {owner.host})"
            if not waited:
                log.info("standby", owner=who)
                self._warm_up()
                log.info("standby_ready")
                waited = True
            if not self._spark.is_sound():
                # A standby must be warm before it is needed.
                if not self._spark.renew():
                    raise SparkLostError("Spark's JVM is gone, and only spark-submit can start another one")
                self._warm_up()
            self._health.standing_by(f"{who} owns the outbox")
            if self._stop.wait(_POLL_S):
                return False
        if waited:
            log.info("standby_takes_over")
        return True

    def _living_owner(self, connection: Connection, own: Collection[UUID]) -> Owner | None:
        owner = read_owner(connection)
        return (
            owner if owner.run_id not in own and owner.is_alive(self._settings.job.owner_timeout_s) else None
        )

    def _warm_up(self) -> None:
        with explained():
            session = self._spark.get()
        if session is not self._warm:
            try:
                warm_up(session, self._settings.job.tasks)
            except Exception as error:  # noqa: BLE001 - the first batch raises it again
                log.warning("not_warmed_up", because=" ".join(str(error).split())[:300])
            self._warm = session
