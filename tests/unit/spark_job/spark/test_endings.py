"""Of what a query's threads say at its end, the true failure is told, and what was meant only where nothing failed."""

import pytest
from py4j.protocol import Py4JNetworkError

from spark_job.spark.endings import DroppedError, LargerBatchesError, StopRequestedError, first_failure

FAILED, OTHER = ValueError("Postgres is away"), ValueError("the transform failed")
STOP, LARGER, DROPPED = StopRequestedError(), LargerBatchesError(), DroppedError()
REPEATED = RuntimeError("Spark repeats what the callback raised")
JVM_GONE = Py4JNetworkError("gone")


@pytest.mark.parametrize(
    ("commit", "callback", "spark", "told"),
    [
        (None, None, None, None),
        (None, OTHER, REPEATED, OTHER),
        (None, STOP, REPEATED, STOP),
        (None, LARGER, REPEATED, LARGER),
        (None, None, JVM_GONE, JVM_GONE),
        # The commit's failure, which the callback raises again or answers with a stop.
        (FAILED, FAILED, REPEATED, FAILED),
        (FAILED, STOP, REPEATED, FAILED),
        (FAILED, LARGER, REPEATED, FAILED),
        (FAILED, None, None, FAILED),
        (FAILED, OTHER, REPEATED, FAILED),
        # A commit that was held back until a stop hides no failure of the batch behind it.
        (STOP, STOP, REPEATED, STOP),
        (STOP, None, None, STOP),
        (STOP, OTHER, REPEATED, OTHER),
        (STOP, None, JVM_GONE, JVM_GONE),
        # One that was dropped because the query had ended is no reason for that.
        (DROPPED, OTHER, REPEATED, OTHER),
        (DROPPED, DROPPED, JVM_GONE, JVM_GONE),
        (DROPPED, None, JVM_GONE, JVM_GONE),
        (DROPPED, None, None, None),
    ],
)
def test_a_failure_is_told_before_what_was_meant(
    commit: BaseException | None,
    callback: BaseException | None,
    spark: BaseException | None,
    told: BaseException | None,
) -> None:
    assert first_failure(commit, callback, spark) is told
