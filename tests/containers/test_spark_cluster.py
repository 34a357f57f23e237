"""deploy/spark-cluster.yml: the job's tasks in containers of a Spark cluster, of which workers and master are killed."""

import pytest

from examples.clickstream.topics import LOAD
from examples.clickstream.transform import TOPICS
from tests.support.containers.compose_expectation import is_dealt_with, of_inputs, together
from tests.support.containers.compose_project import Stack, progress
from tests.support.pipeline import verdict
from tests.support.pipeline.feed import Feeder, rounds
from tests.support.reading import end_offsets
from tests.support.watching import Watcher

FILES = ("deploy/spark-cluster.yml", "tests/support/containers/spark_cluster.yml")

pytestmark = [pytest.mark.containers, pytest.mark.timeout(2_400)]


def test_exactly_once_on_a_cluster_whose_containers_are_killed(stack: Stack) -> None:
    dsn = stack.dsn("postgres", stack.secrets()["postgres"])
    with Watcher(stack.bootstrap, *TOPICS) as watcher:
        with Feeder(stack.bootstrap, LOAD, rounds(3, 50, 5.0)):
            _wait_for_batches(stack, dsn)
            # The master remembers the job, and gives it executors again.
            for service in ("spark-worker", "spark-master", "spark-worker", "spark-job"):
                stack.kill(stack.containers(service)[0])
                _wait_for_batches(stack, dsn)
            stack.compose("scale", "spark-worker=3")
            _wait_for_batches(stack, dsn)
            stack.wait_until(
                lambda: stack.container("clickstream").exit_code is not None, "the end of the sample"
            )
        expected = of_inputs(stack.bootstrap)
        stack.wait_until(lambda: is_dealt_with(dsn, expected), "the delivery of everything")
        stack.compose("stop", "spark-job", "publisher")
        ends = end_offsets(stack.bootstrap, TOPICS, committed=True)
        stack.wait_until(lambda: watcher.has_read_to(ends), "reading the output topics to their ends")
        whole = together(expected)
        verdict.assert_delivered(whole, watcher.seen)
        verdict.assert_outbox(dsn, whole)
        verdict.assert_ledger_agrees(dsn)
    assert stack.log("spark-worker").count("Asked to launch executor") >= 4, "the tasks ran there"


def _wait_for_batches(stack: Stack, dsn: str) -> None:
    before, _ = progress(dsn)
    stack.wait_until(lambda: progress(dsn)[0] > before + 2, "more batches")
