"""The job as a driver whose executors are pods: they are killed under load, and so is the driver; everything comes out exactly."""

import pytest

from tests.support.cluster.pipeline import WITH_EXECUTORS, Pipeline, Pod, is_ready, name_of

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3_600)]

_EXECUTORS = 2


def test_exactly_once_with_executors_in_pods(pipeline: Pipeline) -> None:
    pipeline.install(WITH_EXECUTORS)
    assert "Warning" not in pipeline.applied.stderr
    with pipeline.fed(9):
        first, second = wait_for_executors(pipeline)
        pipeline.cluster.kill(first)
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries after an executor's death")
        pipeline.kubectl("delete", "pod", name_of(second), "--grace-period=0", "--force")
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries without an executor's pod")
        others = wait_for_executors(pipeline, first, second)

        [job] = pipeline.pods("spark-job")
        pipeline.kill(job)
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries of the next driver")
        wait_for_executors(pipeline, *others)
    pipeline.assert_exact()
    # Those between driver and executors are authenticated and encrypted.
    assert "Spark's cluster" not in pipeline.kubectl("logs", name_of(job))


def wait_for_executors(pipeline: Pipeline, *former: Pod) -> list[Pod]:
    """Return the executors once there are as many as wanted, none of them one of the former."""
    names = {name_of(pod) for pod in former}
    found: list[Pod] = []

    def are_there() -> bool:
        found[:] = [
            pod for pod in pipeline.pods("spark-executor") if is_ready(pod) and name_of(pod) not in names
        ]
        return len(found) == _EXECUTORS

    pipeline.wait_until(are_there, f"{_EXECUTORS} executors")
    return found
