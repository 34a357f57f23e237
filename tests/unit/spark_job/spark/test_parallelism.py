"""Small batches have a task for each core, or one where that is known to suffice; large ones two; a container's quota counts."""

import os
from pathlib import Path

import pytest

from spark_job.spark import parallelism


@pytest.mark.parametrize(("records", "tasks"), [(0, 2), (79_999, 2), (80_000, 4), (600_000, 4)])
def test_a_large_batch_has_two_tasks_for_each_core(records: int, tasks: int) -> None:
    assert parallelism.tasks(records, cores=2, threads=4) == tasks


def test_a_cluster_has_as_many_tasks_as_cores() -> None:
    assert parallelism.tasks(10_000_000, cores=12, threads=12) == 12


@pytest.mark.parametrize(
    ("records", "partitions", "tasks"),
    [
        (300, 4, 1),
        (1_400, 8, 1),
        (1_600, 4, 2),
        (300, 9, 2),  # fetched one after the other
        (80_000, 4, 4),
    ],
)
def test_one_task_does_what_takes_a_moment(records: int, partitions: int, tasks: int) -> None:
    count = parallelism.TaskCount(2, 4, saves=True)
    assert count.of(records, partitions) == max(2, tasks)  # nothing is known of the first batch
    count.worked(2.0, 100_000)
    assert count.of(records, partitions) == tasks


def test_a_slow_transform_and_a_goal_of_low_latency_have_a_task_for_each_core() -> None:
    slow, soon = parallelism.TaskCount(2, 4, saves=True), parallelism.TaskCount(2, 4)
    slow.worked(3.0, 300)
    soon.worked(0.001, 300)
    assert [each.of(300, 4) for each in (slow, soon)] == [2, 2]


def test_the_settings_win() -> None:
    count = parallelism.TaskCount(2, 4, fixed=3, saves=True)
    count.worked(0.001, 300)
    assert count.of(300, 4) == count.of(600_000, 4) == 3


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu.max": "nonsense"}, 8),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_quota_counts(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert parallelism.cores(tmp_path) == cores
