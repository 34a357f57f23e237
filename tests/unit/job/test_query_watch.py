"""Which of Spark's reports are taken for the times of a batch."""

from types import SimpleNamespace
from typing import Any

import pytest

from spark_job import metrics
from spark_job.condition import Condition
from spark_job.query_watch import QueryWatch

_IDLE = {"latestOffset": 3, "triggerExecution": 3}
_FIRST = {"latestOffset": 3, "addBatch": 700, "triggerExecution": 800}
_SECOND = _FIRST | {"addBatch": 900}


def _query() -> Any:
    """What of Spark's query is asked for, between two triggers."""
    status = {"message": "Waiting for next trigger", "isDataAvailable": False, "isTriggerActive": False}
    return SimpleNamespace(status=status, lastProgress=None)


def _report(batch: int, times: dict[str, int]) -> SimpleNamespace:
    return SimpleNamespace(batchId=batch, durationMs=times)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The times that reach the metrics."""
    found: list[dict[str, int]] = []
    monkeypatch.setattr(metrics, "spark_batch", found.append)
    return found


def test_a_batch_is_timed_once_and_an_idle_trigger_never(timed: list[dict[str, int]]) -> None:
    """While nothing arrives, Spark reports triggers as the batch that comes next, also for a moment after that is in the outbox."""
    query, condition = _query(), Condition()
    watch = QueryWatch(query, condition)
    watch.look()
    condition.batch_committed(0)
    watch.look()
    assert timed == []
    query.lastProgress = _report(0, _FIRST)
    watch.look()
    watch.look()
    assert timed == [_FIRST]
    query.lastProgress = _report(1, _IDLE)
    watch.look()
    condition.batch_committed(1)
    watch.look()
    assert timed == [_FIRST]
    query.lastProgress = _report(1, _SECOND)
    watch.look()
    assert timed == [_FIRST, _SECOND]


def test_a_batch_that_is_not_in_the_outbox_is_not_timed(timed: list[dict[str, int]]) -> None:
    query, condition = _query(), Condition()
    watch = QueryWatch(query, condition)
    condition.batch_committed(0)
    query.lastProgress = _report(1, _SECOND)
    watch.look()
    assert timed == []
