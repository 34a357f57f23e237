"""Read Spark's status and times of a running query for `/readyz` and the metrics. The main thread does this: no batch waits for it."""

import time

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from service.observability.best_effort import best_effort
from spark_job.monitoring import metrics
from spark_job.monitoring.health import JobHealth

_STATUS_EVERY_S = 1.0
# Spark's status of a query between two triggers.
_WAITING = "Waiting for"
# A phase that only a trigger with input has.
_BATCH = "addBatch"


class QueryStatus:
    """The status of one query."""

    def __init__(self, query: StreamingQuery, health: JobHealth, batches: int) -> None:
        """`batches`: number of batches of the run's earlier queries."""
        self._query = query
        self._health = health
        self._before = batches
        self._asked_at = 0.0
        self._timed = batches - 1

    def poll(self) -> None:
        """Read the status, at most once a second, and the times of each batch that has ended. Call often.

        Raises Py4JError and OSError from Spark's gateway if the JVM is gone. Skips answers that it cannot read.
        """
        self._health.query_polled()
        now = time.monotonic()
        if now - self._asked_at >= _STATUS_EVERY_S:
            self._asked_at = now
            self._read_status()
        if self._timed < self._health.computed:
            self._time_batch()

    @best_effort("status of the query", Py4JError, OSError)
    def _read_status(self) -> None:
        status = self._query.status
        waits = not status["isTriggerActive"] and status["message"].startswith(_WAITING)
        self._health.query_described(status["message"], between_triggers=waits)

    @best_effort("times of a batch", Py4JError, OSError)
    def _time_batch(self) -> None:
        """Record a batch's times. Spark reports them a moment after the callback's return. If the next batch ends before they are read,
        they are lost.
        """
        progress = self._query.lastProgress
        if progress is None or not self._timed < self._before + progress.batchId <= self._health.computed:
            return
        # An idle query reports the number of the next batch, for which it has not yet run the phase `addBatch`.
        if _BATCH in progress.durationMs:
            self._timed = self._before + progress.batchId
            metrics.spark_batch(progress.durationMs)
