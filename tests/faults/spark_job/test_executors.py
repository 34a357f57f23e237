"""Executors as they are on a cluster: processes of their own, each with its own disk, which may be lost or too slow."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from devstack.processes.port import LOOPBACK
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.servers.spark_cluster import SparkCluster, spark_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A Spark cluster with two executors."""
    with spark_cluster(tmp_path) as made:
        yield made


@pytest.fixture
def pipeline(
    cluster: SparkCluster, database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[Pipeline]:
    """A pipeline whose job runs its tasks there; the publisher is at work."""
    options: Options = {
        "job": {
            "master": cluster.master,
            # Relative: below each executor's own directory, so that none finds what another one kept.
            "cache": "cache",
            "max_events_per_batch": 300,
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
    pipeline: Pipeline, cluster: SparkCluster
) -> None:
    pipeline.hold_open(6)
    with pipeline.load(31, sessions_per_second=40):
        pipeline.job.start(**pipeline.armed)
        _wait_for_batches(pipeline, 3)
        for _ in range(3):
            pipeline.wait_until(lambda: len(cluster.executors()) == 2, "both executors")
            cluster.executors()[0].send_signal(signal.SIGKILL)
            _wait_for_batches(pipeline, 3)
        # The task that stands still is run once more on the other executor; when it continues, it comes too late.
        with pipeline.held_at("task.after_assembly"):
            _wait_for_batches(pipeline, 2)
    pipeline.release()
    expected = pipeline.expectation()
    pipeline.complete(expected)
    assert pipeline.restored() == ["fresh"], "the run has ended"
    assert "open_sessions_rebuilt" in pipeline.job.log()
    pipeline.stop()
    pipeline.assert_exactly_once(expected)


def _wait_for_batches(pipeline: Pipeline, more: int) -> None:
    wanted = pipeline.batches() + more
    pipeline.wait_until(lambda: pipeline.batches() >= wanted, "batches", timeout_s=300, alive=(pipeline.job,))
