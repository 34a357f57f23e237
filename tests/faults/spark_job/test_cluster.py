"""A Spark cluster: a master and two workers as processes of their own, which share no folder and have nothing of ours but what Spark sends.

Executors, a worker, the master and the driver are killed; tasks run twice. docs/cluster.md has the date of the last run.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.paths import ROOT
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.spark_cluster import SPARK_OPTIONS, SparkCluster, spark_cluster
from tests.support.pipeline.submit import spark_submit, stop_submitted


def packed_environment(folder: Path) -> Path:
    """Make environment.tar.gz there, with what requirements/executor.txt names."""
    environment, archive = folder / "environment", folder / "environment.tar.gz"
    uv = [sys.executable, "-m", "uv"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for command in (
        [*uv, "venv", "--relocatable", "--no-project", "--python", version, str(environment)],
        [*uv, "pip", "install", "--python", str(environment), "-r", "requirements/executor.txt"],
        ["tar", "-czf", str(archive), "-C", str(environment), "."],
    ):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "UV_QUIET": "1"}
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    return archive


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A master and two workers."""
    with spark_cluster(tmp_path) as made:
        yield made


@pytest.fixture
def pipeline(
    cluster: SparkCluster, database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[Pipeline]:
    """A pipeline whose job runs its tasks there; the publisher is at work."""
    options: Options = {
        "job": {
            "master": cluster.master.url,
            # Relative: below each executor's own directory, so that none finds what another one kept.
            "cache": "cache",
            "max_events_per_batch": 1_000,
            "spark_options": SPARK_OPTIONS
            | {
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.minTaskRuntime": "500ms",
            },
        }
    }
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as made:
        made.publisher.start()
        yield made


@pytest.mark.guarantee(25)
@pytest.mark.faults
@pytest.mark.timeout(1_200)
def test_executors_killed_under_load_and_tasks_run_twice_lose_and_repeat_nothing(
    pipeline: Pipeline, cluster: SparkCluster
) -> None:
    pipeline.hold_open(6)
    with pipeline.load(31, sessions_per_second=40):
        pipeline.job.start(**pipeline.armed)
        pipeline.more_batches(3)
        for _ in range(3):
            pipeline.wait_until(lambda: len(cluster.executors()) == 2, "both executors")
            cluster.executors()[0].send_signal(signal.SIGKILL)
            pipeline.more_batches(3)
        # The task that stands still is run once more on the other executor; when it continues, it comes too late.
        with pipeline.held_at("task.after_assembly"):
            pipeline.more_batches(2)
    pipeline.release()
    expected = pipeline.expectation()
    pipeline.complete(expected)
    assert pipeline.restored() == ["fresh"], "the run has ended"
    assert "open_sessions_rebuilt" in pipeline.job.log()
    pipeline.stop()
    pipeline.assert_exactly_once(expected)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("submitted", [False, True], ids=["spark-job run", "spark-submit"])
def test_a_job_that_finds_no_master_tries_again_until_there_is_one(
    pipeline: Pipeline, cluster: SparkCluster, tmp_path: Path, submitted: bool
) -> None:
    if submitted:
        pipeline.job.launcher = spark_submit(tmp_path, "--master", cluster.master.url)
    pipeline.feed(33, sessions=20)
    cluster.master.kill()
    pipeline.job.start()
    pipeline.wait_until(lambda: "job_restarting" in pipeline.job.log(), "an attempt that failed")
    cluster.master.start()
    pipeline.wait_for_input(pipeline.expectation())


@pytest.mark.guarantee(25)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "submitted", [False, True], ids=["spark-job run", "spark-submit with a packed environment"]
)
def test_an_executor_a_worker_the_master_and_the_driver_killed_under_load_lose_and_repeat_nothing(
    pipeline: Pipeline, cluster: SparkCluster, tmp_path: Path, submitted: bool
) -> None:
    if submitted:
        pipeline.job.launcher = spark_submit(
            tmp_path,
            *("--master", cluster.master.url),
            *("--archives", f"{packed_environment(tmp_path)}#environment"),
            *("--conf", "spark.pyspark.python=./environment/bin/python"),
        )
    pipeline.hold_open(6)
    with pipeline.load(32, sessions_per_second=10):
        pipeline.job.start()
        pipeline.more_batches(3)
        pipeline.wait_until(lambda: len(cluster.executors()) == 2, "both executors")
        cluster.executors()[0].send_signal(signal.SIGKILL)
        pipeline.more_batches(3)
        cluster.workers[0].kill()
        pipeline.more_batches(3)
        cluster.workers[0].start()
        pipeline.wait_until(lambda: len(cluster.executors()) == 2, "both executors")
        # What runs continues without a master, and a new one remembers it.
        cluster.master.kill()
        pipeline.more_batches(3)
        cluster.master.start()
        cluster.executors()[0].send_signal(signal.SIGKILL)
        pipeline.wait_until(lambda: len(cluster.executors()) == 2, "an executor from the new master")
        pipeline.more_batches(3)
        pipeline.job.kill()
        pipeline.job.start()
        pipeline.more_batches(3)
    pipeline.release()
    expected = pipeline.expectation()
    pipeline.complete(expected)
    if submitted:
        assert "spark_submitted" in pipeline.job.log()
        stop_submitted(pipeline)
    else:
        pipeline.stop()
    pipeline.assert_exactly_once(expected)
