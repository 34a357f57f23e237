"""Containers killed or out of memory, pods deleted, a kubelet that hangs, Kafka away: everything comes out exactly."""

import pytest

from tests.support.cluster.pipeline import SERVERS, SERVICES, Pipeline, Pod, is_ready, name_of, restarts

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3_600)]

_LIVENESS_PROBES = 7
"""More than the six failures after which the kubelet restarts a container."""
_MANY_SMALL_PROCESSES = """
import os, time
for _ in range(100):
    if os.fork() == 0:
        block = b"x" * (45 << 20)
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""
"""Together beyond every limit, each smaller than a service: the kernel kills the largest process of a container."""


def test_exactly_once_whatever_container_is_killed(pipeline: Pipeline) -> None:
    """Each container of the namespaces, by SIGKILL under load; its pod stays, and the kubelet starts it again."""
    with pipeline.fed(1) as feeder:
        for name in (*SERVICES, *SERVERS):
            before = pipeline.progress()
            [pod] = pipeline.pods(name)
            pipeline.kill(pod)
            assert feeder.is_writing()
            pipeline.wait_for_progress(before, f"batches and deliveries after the death of {name}")
    pipeline.assert_exact()


@pytest.mark.parametrize("options", [["--grace-period=0", "--force"], []], ids=["at once", "in order"])
@pytest.mark.parametrize("name", SERVICES)
def test_exactly_once_when_a_pod_is_deleted(pipeline: Pipeline, name: str, options: list[str]) -> None:
    """Its Deployment makes another one, without the job's cache."""
    with pipeline.fed(2):
        [pod] = pipeline.pods(name)
        pipeline.kubectl("delete", "pod", name_of(pod), "--wait=false", *options)
        before = pipeline.progress()

        def another() -> bool:
            return [(name_of(now) != name_of(pod), is_ready(now)) for now in pipeline.pods(name)] == [
                (True, True)
            ]

        pipeline.wait_until(another, f"another pod of {name}")
        pipeline.wait_for_progress(before, f"batches and deliveries of the other pod of {name}")
    pipeline.assert_exact()


def test_a_standby_continues_where_the_owner_was_deleted(pipeline: Pipeline) -> None:
    with pipeline.fed(3):
        [owner] = pipeline.pods("spark-job")
        pipeline.kubectl("scale", "deployment/spark-job", "--replicas=2")
        pipeline.kubectl("rollout", "status", "deployment/spark-job", "--timeout=10m")
        [standby] = [pod for pod in pipeline.pods("spark-job") if name_of(pod) != name_of(owner)]
        pipeline.kubectl("delete", "pod", name_of(owner), "--grace-period=0", "--force")
        before = pipeline.progress()
        pipeline.wait_for_progress(before, "batches and deliveries after the takeover")
        assert restarts(pipeline.again(standby)) == restarts(standby)
        pipeline.kubectl("scale", "deployment/spark-job", "--replicas=1")
        pipeline.wait_until(lambda: len(pipeline.pods("spark-job")) == 1, "one pod of the job")
        pipeline.kubectl("rollout", "status", "deployment/spark-job", "--timeout=10m")
    pipeline.assert_exact()


@pytest.mark.parametrize("name", SERVICES)
def test_exactly_once_when_a_container_is_out_of_memory(pipeline: Pipeline, name: str) -> None:
    """Its largest process dies: the publisher, or the job's JVM. The kubelet or the job starts it again."""
    with pipeline.fed(6):
        [pod] = pipeline.pods(name)
        killed = oom_kills(pipeline, pod)
        pipeline.kubectl("exec", name_of(pod), "--", "python", "-c", _MANY_SMALL_PROCESSES, check=False)
        pipeline.wait_until(
            lambda: restarts(pipeline.again(pod)) > restarts(pod) or oom_kills(pipeline, pod) > killed,
            f"a process of {name} that is killed for want of memory",
        )
        pipeline.wait_until(pipeline.all_ready, "every pod to be ready again")
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries with memory again")
    pipeline.assert_exact()


def test_exactly_once_although_the_kubelet_hangs(pipeline: Pipeline) -> None:
    """The node counts as lost meanwhile, and its pods leave the Services, those of Postgres and Kafka, too."""
    cluster = pipeline.cluster

    def node_is_ready(status: str) -> bool:
        found = cluster.read("node", "node")["status"]["conditions"]
        return [each["status"] for each in found if each["type"] == "Ready"] == [status]

    with pipeline.fed(7):
        before = pipeline.restarts()
        with cluster.frozen("kubelet"):
            pipeline.wait_until(lambda: node_is_ready("Unknown"), "a node that is lost")
        pipeline.wait_until(lambda: node_is_ready("True"), "the node's return")
        pipeline.wait_until(pipeline.all_ready, "every pod to be ready again")
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries after the node's return")
        assert pipeline.restarts() == before
    pipeline.assert_exact()


def test_without_kafka_the_pods_are_alive_but_not_ready_and_recover_by_themselves(pipeline: Pipeline) -> None:
    cluster = pipeline.cluster

    def passed() -> dict[str, float]:
        return liveness_probes(cluster.kubectl("get", "--raw", "/api/v1/nodes/node/proxy/metrics/probes"))

    def no_kafka() -> bool:
        return not cluster.read("pods", "--namespace=servers", "--selector=app=kafka")["items"]

    with pipeline.fed(4):
        # A publisher that has nothing to deliver stays ready: it is paused until something waits for it.
        [publisher] = pipeline.pods("publisher")
        with cluster.paused(publisher):
            batch, _ = pipeline.progress()
            pipeline.wait_until(
                lambda: pipeline.progress()[0] > batch + 1, "batches to wait for the publisher"
            )
            cluster.kubectl("--namespace=servers", "scale", "deployment/kafka", "--replicas=0")
            pipeline.wait_until(no_kafka, "the end of Kafka")

        def none_is_ready() -> bool:
            return not any(is_ready(pod) for name in SERVICES for pod in pipeline.pods(name))

        pipeline.wait_until(none_is_ready, "no pod to be ready without Kafka")
        before = pipeline.restarts()
        pipeline.wait_until(lambda: passed().keys() >= before.keys(), "a liveness probe of each pod")
        begun = passed()
        pipeline.wait_until(
            lambda: all(passed()[pod] >= begun[pod] + _LIVENESS_PROBES for pod in before),
            "liveness probes without Kafka",
        )
        assert none_is_ready()
        cluster.kubectl("--namespace=servers", "scale", "deployment/kafka", "--replicas=1")
        pipeline.wait_until(pipeline.all_ready, "every pod to be ready again")
        pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries after Kafka came back")
        assert pipeline.restarts() == before, "started again because of Kafka"
    pipeline.assert_exact()


def liveness_probes(metrics: str) -> dict[str, float]:
    """{pod of a service: probes that it has passed}, of the kubelet's metrics."""
    found = {}
    for line in metrics.splitlines():
        name, _, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        given = dict(label.split("=", 1) for label in labels.split(",") if "=" in label)
        of = {key: text.strip('"') for key, text in given.items()}
        wanted = ("prober_probe_total", "Liveness", "successful", "outbox")
        if wanted == (name, of.get("probe_type"), of.get("result"), of.get("namespace")):
            found[of["pod"]] = float(value.split()[0])
    return found


def oom_kills(pipeline: Pipeline, pod: Pod) -> int:
    """Processes of the pod's container that the kernel has killed for want of memory; 0 while none can be asked."""
    file = "/sys/fs/cgroup/memory/memory.oom_control"
    said = pipeline.kubectl("exec", name_of(pod), "--", "cat", file, check=False)
    return sum(int(line.split()[1]) for line in said.splitlines() if line.startswith("oom_kill "))
