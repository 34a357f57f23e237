"""What Spark says of a running query, asked from the main thread beside it: the batches themselves wait for nothing."""

import time

from pyspark.sql.streaming.query import StreamingQuery

from spark_job import metrics
from spark_job.condition import Condition

_STATUS_EVERY_S = 1.0
# Spark's words for a query between two triggers.
_WAITING = "Waiting for"
# The phase that a trigger with input has, and one without has not.
_BATCH = "addBatch"


class QueryWatch:
    """One query's. `look` raises what Spark's gateway raises."""

    def __init__(self, query: StreamingQuery, condition: Condition) -> None:
        self._query = query
        self._condition = condition
        self._asked_at = 0.0
        self._timed = -1

    def look(self) -> None:
        """Ask for the status once a second, and for the times of each batch when it is through. Call often."""
        self._condition.asked_spark()
        now = time.monotonic()
        if now - self._asked_at >= _STATUS_EVERY_S:
            self._asked_at = now
            status = self._query.status
            waits = not status["isTriggerActive"] and status["message"].startswith(_WAITING)
            self._condition.spark_does(status["message"], between_triggers=waits)
        if self._timed < self._condition.committed:
            self._time_batch()

    def _time_batch(self) -> None:
        """Spark reports a batch a moment after its callback has returned. One that a later one overtakes meanwhile is left out."""
        progress = self._query.lastProgress
        # A trigger without input is reported too, as the batch that comes next.
        if progress is None or not self._timed < progress.batchId <= self._condition.committed:
            return
        if _BATCH in progress.durationMs:
            self._timed = progress.batchId
            metrics.spark_batch(progress.durationMs)
