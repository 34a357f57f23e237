"""Spark's times are those of batches, whatever the query does between them, and an answer that cannot be read ends nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from spark_job.monitoring import metrics
from spark_job.monitoring.health import JobHealth
from spark_job.stream.query_status import QueryStatus

IDLE = {"latestOffset": 3, "triggerExecution": 4}


class Query:
    """Answers what it was told to."""

    def __init__(self) -> None:
        self.status: Any = {"isTriggerActive": False, "message": "Waiting for data to arrive"}
        self.lastProgress: Any = None

    def reports(self, batch: int, durations: dict[str, int]) -> None:
        self.lastProgress = SimpleNamespace(batchId=batch, durationMs=durations)


def times(phase: str) -> tuple[float, float]:
    """How often the phase was timed, and the sum in seconds."""
    found = metrics.REGISTRY.get_sample_value
    return (
        found("outbox_spark_phase_seconds_count", {"phase": phase}) or 0.0,
        found("outbox_spark_phase_seconds_sum", {"phase": phase}) or 0.0,
    )


def watched(query: Any, batches: int = 0) -> tuple[QueryStatus, JobHealth]:
    """`batches`: of the run's earlier queries."""
    health = JobHealth()
    health.running({})
    return QueryStatus(query, health, batches), health


def test_what_an_idle_query_reports_under_the_next_batchs_number_is_not_taken_for_that_batch() -> None:
    query = Query()
    status, health = watched(query)
    before, (triggers, _) = times("addBatch"), times("triggerExecution")
    health.batch_computed(0)
    query.reports(0, {"addBatch": 2_000, "triggerExecution": 2_100})
    status.poll()
    query.reports(1, IDLE)
    status.poll()
    # The next batch's tasks are through, and Spark has not reported it yet.
    health.batch_computed(1)
    status.poll()
    query.reports(1, {"addBatch": 4_000, "triggerExecution": 4_100})
    status.poll()
    status.poll()
    count, seconds = times("addBatch")
    assert count - before[0] == 2
    assert seconds - before[1] == pytest.approx(6)
    assert times("triggerExecution")[0] - triggers == 2


def test_the_batches_of_a_runs_second_query_are_timed_though_spark_counts_them_from_zero_again() -> None:
    query = Query()
    status, health = watched(query, batches=4)
    before = times("addBatch")[0]
    query.reports(0, {"addBatch": 1_000, "triggerExecution": 1_100})
    health.batch_computed(3)
    status.poll()
    assert times("addBatch")[0] == before, "it is the first query's batch 3 that was computed"
    health.batch_computed(4)
    status.poll()
    assert times("addBatch")[0] == before + 1


@pytest.mark.guarantee(133)
@pytest.mark.parametrize("answer", [{}, {"isTriggerActive": False}, None])
def test_an_answer_that_cannot_be_read_ends_nothing(answer: Any) -> None:
    query = Query()
    status, health = watched(query)
    query.status = answer
    query.reports(0, {"addBatch": "soon"})  # type: ignore[dict-item]
    health.batch_computed(0)
    status.poll()
    assert health.snapshot().doing == ""


def test_a_jvm_that_is_gone_is_said() -> None:
    class Gone(Query):
        @property
        def status(self) -> Any:
            raise Py4JNetworkError("gone")

        @status.setter
        def status(self, _value: Any) -> None:
            pass

    status, _ = watched(Gone())
    with pytest.raises(Py4JNetworkError):
        status.poll()
