"""Rollouts, numbers of replicas and passwords change under load: everything comes out exactly."""

import pytest

from tests.support.cluster.pipeline import SERVICES, Pipeline, is_ready, name_of
from tests.support.outbox.deliveries import spread
from tests.support.queries import query

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize("name", SERVICES)
def test_exactly_once_over_a_rollout(pipeline: Pipeline, name: str) -> None:
    """A new tag: the new pod is ready before the old one ends."""
    with pipeline.fed(7):
        [old] = pipeline.pods(name)
        pipeline.kubectl("set", "image", f"deployment/{name}", f"{name}=spark-outbox/{name}:next")
        pipeline.kubectl("rollout", "status", f"deployment/{name}", "--timeout=10m")
        [new] = pipeline.pods(name)
        assert name_of(new) != name_of(old)
        assert new["spec"]["containers"][0]["image"] == f"spark-outbox/{name}:next"
        pipeline.wait_for_progress(pipeline.progress(), f"batches and deliveries of the new {name}")
    pipeline.assert_exact()


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["image", "{name}=spark-outbox/{name}:of-nobody"], {"ErrImagePull", "ImagePullBackOff"}),
        (["env", "OUTBOX_LOG__FORMAT=of-nobody"], {"Error", "CrashLoopBackOff"}),
    ],
    ids=["no such image", "refused settings"],
)
def test_a_rollout_that_cannot_start_leaves_the_old_pod_alone(
    pipeline: Pipeline, name: str, change: list[str], reason: set[str]
) -> None:
    """Until it is undone."""
    with pipeline.fed(8):
        [old] = pipeline.pods(name)
        kind, value = change
        pipeline.kubectl("set", kind, f"deployment/{name}", value.format(name=name))

        def new_pod_waits() -> bool:
            return any(
                state.get("reason") in reason
                for pod in pipeline.pods(name)
                for status in pod["status"].get("containerStatuses", [])
                for state in status["state"].values()
            )

        pipeline.wait_until(new_pod_waits, "the new pod to fail")
        pipeline.wait_for_progress(
            pipeline.progress(), "batches and deliveries beside a pod that cannot start"
        )
        assert is_ready(now := pipeline.again(old))
        pipeline.kubectl("rollout", "undo", f"deployment/{name}")
        pipeline.kubectl("rollout", "status", f"deployment/{name}", "--timeout=10m")
        pipeline.wait_until(lambda: len(pipeline.pods(name)) == 1, "the end of the new pod")
        [left] = pipeline.pods(name)
        assert (name_of(left), left["status"]["startTime"]) == (name_of(old), now["status"]["startTime"])
    pipeline.assert_exact()


def test_publishers_share_the_lanes_as_they_are_scaled(pipeline: Pipeline) -> None:
    """One, three, two of them, for four lanes."""
    with pipeline.fed(9):
        for replicas, lanes in ((3, [1, 1, 2]), (2, [2, 2]), (1, [4])):
            before = pipeline.progress()
            pipeline.kubectl("scale", "deployment/publisher", f"--replicas={replicas}")
            pipeline.wait_until(lambda lanes=lanes: spread(pipeline.dsn) == lanes, f"lanes shared as {lanes}")  # type: ignore[misc]
            pipeline.wait_for_progress(before, f"batches and deliveries with {replicas} publishers")
    pipeline.assert_exact()


def test_passwords_change_without_a_restart(pipeline: Pipeline) -> None:
    """New ones in Postgres and in the Secrets; when every connection has been ended, both services are back by themselves."""
    before = pipeline.restarts()
    with pipeline.fed(10):
        pipeline.passwords |= {"spark_job": "of-the-second-day", "publisher": "of-the-second-day"}
        pipeline.make_logins()
        pipeline.write_secrets()

        def has_arrived(name: str) -> bool:
            dsn = pipeline.kubectl("exec", f"deployment/{name}", "--", "cat", "/run/secrets/outbox/dsn")
            return "of-the-second-day" in dsn

        pipeline.wait_until(lambda: all(map(has_arrived, SERVICES)), "the new Secrets in the pods")
        ended = query(
            pipeline.dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('spark_job', 'publisher')",
        )
        assert len(ended) >= len(SERVICES)
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries with the new passwords")
        pipeline.wait_until(pipeline.all_ready, "every pod to be ready")
    assert pipeline.restarts() == before
    pipeline.assert_exact()
