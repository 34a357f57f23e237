"""The cost of a batch is what was spent between two moments, divided by the batches of that time."""

from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.suite.load.workload import Run
from benchmarks.suite.measures.small_batch import LABELS, Spent

BEFORE = Spent({"job": 10.0, "job_jvm": 6.0, "job_driver": 1.0, "postgres": 2.0, "kafka": 5.0}, 100, 40_000)
AFTER = Spent(
    {"job": 16.0, "job_jvm": 9.0, "job_driver": 2.0, "job_workers": 2.0, "postgres": 2.5, "kafka": 5.1},
    150,
    65_000,
)


def test_only_what_was_spent_and_committed_between_counts() -> None:
    assert AFTER.of_a_batch(BEFORE) == pytest.approx(
        {
            "batches": 50,
            "events": 500.0,
            "cpu_job": 120.0,
            "cpu_job_jvm": 60.0,
            "cpu_job_driver": 20.0,
            "cpu_job_workers": 40.0,
            "cpu_postgres": 10.0,
            "cpu_kafka": 2.0,
        }
    )


def test_each_measure_has_a_name_for_people() -> None:
    assert AFTER.of_a_batch(BEFORE).keys() <= LABELS.keys()


def test_without_a_batch_there_is_no_cost_of_one() -> None:
    with pytest.raises(ValueError, match="no batch was committed"):
        AFTER.of_a_batch(AFTER)


def test_a_peer_has_no_batches_that_a_ledger_counts() -> None:
    with pytest.raises(ValueError, match="only ours"):
        Spent.by(cast(Run, SimpleNamespace(contender=object())))
