"""The NetworkPolicies, kept by a real plug-in: names, Postgres and Kafka out, metrics in, and nothing else."""

import json
from collections.abc import Iterator

import pytest

from tests.support.cluster.pipeline import Pipeline

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3_600)]

_PROGRAM = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 5).close()
        print(place, "reached")
    except OSError as error:
        print(place, type(error).__name__)
"""
_KAFKA, _POSTGRES = "kafka.servers.svc:9092", "postgres.servers.svc:5432"
_API = "kubernetes.default.svc:443"


@pytest.fixture
def stranger(pipeline: Pipeline) -> Iterator[str]:
    """The address of somebody else's pod, which listens on port 8080."""
    listen = "import http.server as s; s.HTTPServer(('', 8080), s.SimpleHTTPRequestHandler).serve_forever()"
    _run(pipeline, "stranger", "default", {}, ["python", "-c", listen])
    [pod] = pipeline.cluster.read("pods", "--namespace=default")["items"]
    yield f"{pod['status']['podIP']}:8080"
    pipeline.cluster.kubectl(
        "delete", "pod", "stranger", "--namespace=default", "--grace-period=0", "--force"
    )


def test_a_pod_with_the_label_reaches_names_and_the_servers_and_nothing_else(
    pipeline: Pipeline, stranger: str
) -> None:
    [service] = pipeline.pods("publisher")
    metrics = f"{service['status']['podIP']}:9464"
    places = [_KAFKA, _POSTGRES, _API, stranger, metrics]
    with_label = {"app.kubernetes.io/part-of": "spark-outbox", "app.kubernetes.io/name": "publisher"}
    assert _reached(pipeline, "outbox", {}, places) == [_KAFKA, _POSTGRES, _API, stranger], (
        "without the label"
    )
    assert _reached(pipeline, "outbox", with_label, places) == [_KAFKA, _POSTGRES]
    migrate = with_label | {"app.kubernetes.io/name": "outbox-migrate"}
    assert _reached(pipeline, "outbox", migrate, places) == [_POSTGRES]


def test_metrics_are_for_the_monitoring_namespace_alone(pipeline: Pipeline) -> None:
    pipeline.cluster.kubectl("create", "namespace", "monitoring")
    places = [f"{pipeline.pods(name)[0]['status']['podIP']}:9464" for name in ("publisher", "spark-job")]
    assert _reached(pipeline, "monitoring", {}, places) == places
    assert _reached(pipeline, "default", {}, places) == []


def _reached(pipeline: Pipeline, namespace: str, labels: dict[str, str], places: list[str]) -> list[str]:
    """Those of the places that a pod with these labels can connect to."""
    _run(pipeline, "probe", namespace, labels, ["sleep", "infinity"])
    command = ("exec", "probe", f"--namespace={namespace}", "--", "python", "-c", _PROGRAM, *places)
    said = pipeline.cluster.kubectl(*command)
    pipeline.cluster.kubectl(
        "delete", "pod", "probe", f"--namespace={namespace}", "--grace-period=0", "--force"
    )
    lines = dict(line.split(" ", 1) for line in said.splitlines())
    assert list(lines) == places
    assert set(lines.values()) <= {"reached", "TimeoutError", "ConnectionRefusedError"}, said
    return [place for place, outcome in lines.items() if outcome == "reached"]


def _run(pipeline: Pipeline, name: str, namespace: str, labels: dict[str, str], command: list[str]) -> None:
    """Start a pod of the publisher's image, as confined as the publisher's own."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10002,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "python",
                    "image": "spark-outbox/publisher:test",
                    "command": command,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
    pipeline.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(pod))
    pipeline.cluster.kubectl(
        "wait", "--for=condition=Ready", f"pod/{name}", f"--namespace={namespace}", "--timeout=5m"
    )
