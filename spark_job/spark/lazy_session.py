"""Spark's life in the job: started beside the job's start, kept after a failure, replaced if it no longer works."""

import threading

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from service.settings import JobSettings
from spark_job.spark import jvm
from spark_job.spark.session import start_session, stop_context, stop_session
from spark_job.spark.work_folder import WorkFolder

log = structlog.get_logger()


class LazySession:
    """Spark, started when it is first needed, in a thread of its own, and kept until `stop`."""

    def __init__(self, settings: JobSettings, function: str | None = None) -> None:
        """`function`: see `start_session`."""
        self._settings, self._function = settings, function
        self.folder = WorkFolder()
        """Of this process; gone after `stop`."""
        self._session: SparkSession | None = None
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Begin to start Spark, if it does not run. `get` waits for it."""
        if self._session is None and self._thread is None:
            self._failure = None
            self._thread = threading.Thread(target=self._start, name="spark start", daemon=True)
            self._thread.start()

    def get(self) -> SparkSession:
        """Return the session; start it if there is none. Raises as `start_session` does."""
        self.begin()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._session is None:
            assert self._failure is not None
            raise self._failure
        return self._session

    def _start(self) -> None:
        try:
            self._session = start_session(self._settings, self.folder, self._function)
        except Exception as error:  # noqa: BLE001 - raised by `get`
            self._failure = error
            stop_context()

    def renew(self, *, tidy: bool = False) -> bool:
        """After a failure: keep a session that is sound, which saves the seconds of a new one; else let `get` start another JVM.

        `tidy`: the work files are in the way. Remove them with their JVM, if another JVM can be started.
        Returns False if there can be no other: under spark-submit the JVM is this process's parent.
        """
        self._join()
        if (tidy and jvm.is_ours()) or not self.is_sound():
            if not jvm.is_ours():
                return False
            log.warning("spark_discarded")
            jvm.forget()
            self._session = None
            self.folder.remove()  # a JVM that was killed has removed nothing
        return True

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def is_sound(self) -> bool:
        """Return whether Spark runs without a query; without a session, whether no JVM was lost."""
        if self._session is None:
            return not jvm.lost()  # the JVM may have died while Spark started
        try:
            # A query that would not stop still writes.
            idle = not self._session.streams.active
            return idle and not self._session.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def stop(self) -> None:
        """Stop Spark if it was started."""
        self._join()
        if self._session is not None:
            stop_session(self._session)
            self._session = None
        self.folder.remove()
