"""A Spark cluster: a master and two workers as processes of their own, which share no folder and have nothing of ours but what Spark sends.

Executors, a worker, the master and the driver are killed; tasks run twice. docs/cluster.md has the date of the last run.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from devstack.kafka import KafkaServer
from devstack.processes.port import LOOPBACK
from devstack.spark import SparkMaster, SparkWorker
from tests.support.pipeline.options import Options
from tests.support.pipeline.packed_environment import packed_environment
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.submit import spark_submit, stop_submitted

Server = TypeVar("Server", SparkMaster, SparkWorker)


@contextmanager
def closing_server(server: Server) -> Iterator[Server]:
    """Start it; at the end nothing of it is left."""
    try:
        server.start()
        yield server
    finally:
        server.destroy()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[SparkMaster]:
    """The master of a Spark cluster."""
    made = SparkMaster(tmp_path / "master")
    with closing_server(made):
        yield made


@pytest.fixture
def workers(master: SparkMaster, tmp_path: Path) -> Iterator[list[SparkWorker]]:
    """Its workers, which share no folder and have nothing of ours."""
    made = [SparkWorker(tmp_path / f"worker-{number}", master, number) for number in (1, 2)]
    with ExitStack() as running:
        yield [running.enter_context(closing_server(worker)) for worker in made]


def executors(workers: list[SparkWorker]) -> list[psutil.Process]:
    """All executors as they are now."""
    return [executor for worker in workers for executor in worker.executors()]


@pytest.fixture
def pipeline(
    master: SparkMaster, database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[Pipeline]:
    """A pipeline whose job runs its tasks there; the publisher is at work."""
    options: Options = {
        "job": {
            "master": master.url,
            # Relative: below each executor's own directory, so that none finds what another one kept.
            "cache": "cache",
            "max_events_per_batch": 1_000,
            "spark_options": {
                "spark.driver.host": LOOPBACK,
                "spark.driver.bindAddress": LOOPBACK,
                "spark.executor.memory": "768m",
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.minTaskRuntime": "500ms",
            },
        }
    }
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as made:
        made.publisher.start()
        yield made


@pytest.mark.faults
@pytest.mark.timeout(1_200)
def test_executors_killed_under_load_and_tasks_run_twice_lose_and_repeat_nothing(
    pipeline: Pipeline, workers: list[SparkWorker]
) -> None:
    pipeline.hold_open(6)
    with pipeline.load(31, sessions_per_second=40):
        pipeline.job.start(**pipeline.armed)
        pipeline.more_batches(3)
        for _ in range(3):
            pipeline.wait_until(lambda: len(executors(workers)) == 2, "both executors")
            executors(workers)[0].send_signal(signal.SIGKILL)
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
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "submitted", [False, True], ids=["spark-job run", "spark-submit with a packed environment"]
)
def test_an_executor_a_worker_the_master_and_the_driver_killed_under_load_lose_and_repeat_nothing(
    pipeline: Pipeline, master: SparkMaster, workers: list[SparkWorker], tmp_path: Path, submitted: bool
) -> None:
    if submitted:
        pipeline.job.launcher = spark_submit(
            tmp_path,
            *("--master", master.url),
            *("--archives", f"{packed_environment(tmp_path)}#environment"),
            *("--conf", "spark.pyspark.python=./environment/bin/python"),
        )
    pipeline.hold_open(6)
    with pipeline.load(32, sessions_per_second=10):
        pipeline.job.start()
        pipeline.more_batches(3)
        pipeline.wait_until(lambda: len(executors(workers)) == 2, "both executors")
        executors(workers)[0].send_signal(signal.SIGKILL)
        pipeline.more_batches(3)
        workers[0].kill()
        pipeline.more_batches(3)
        workers[0].start()
        pipeline.wait_until(lambda: len(executors(workers)) == 2, "both executors")
        # What runs continues without a master, and a new one remembers it.
        master.kill()
        pipeline.more_batches(3)
        master.start()
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
