"""Tests of a transform, without a server and without Spark: records are judged and outputs are encoded as in the job.

from spark_job.testing import assert_outputs, run

def test_a_closed_order_has_its_total() -> None:
    result = run(transform, [{"order_id": "o-1", "event": "order_opened"}, {"order_id": "o-1", "event": "order_closed"}])
    assert_outputs(result, [OutputEvent("orders.totals", {"order": "o-1", "items": 0, "cents": 0})])
"""

from spark_job.testing.checks import assert_outputs
from spark_job.testing.outputs import StoredOutput, difference
from spark_job.testing.records import Record
from spark_job.testing.running import SessionRun, TransformRun, run

__all__ = ["Record", "SessionRun", "StoredOutput", "TransformRun", "assert_outputs", "difference", "run"]
