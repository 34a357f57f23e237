"""The chart by a real Helm, in place of what kustomize has built: installed, upgraded under load, removed."""

import json
from pathlib import Path

import pytest

from tests.support.cluster.images import NEXT_TAG, TAG
from tests.support.cluster.pipeline import OVERLAY, SERVICES, Pipeline
from tests.support.paths import ROOT

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3_600)]

# The node has two cores, of which the job alone would ask for two.
_LITTLE_CPU = {"requests": {"cpu": "100m"}}
_SERVERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "servers"}}}]
_OURS = "--selector=app.kubernetes.io/part-of=spark-outbox"
_KINDS = "deployments,jobs,poddisruptionbudgets,networkpolicies,pods"


def test_the_chart_is_installed_upgraded_under_load_and_removed(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.kubectl("delete", "deployments,jobs,poddisruptionbudgets,networkpolicies", _OURS)
    pipeline.wait_until(lambda: not ours(pipeline), "the end of the former installation")

    upgrade(pipeline, tmp_path, publisher=TAG, job=TAG)
    with pipeline.fed(8):
        # As docs/kubernetes.md says: the publisher with the migration first.
        for job in (TAG, NEXT_TAG):
            upgrade(pipeline, tmp_path, publisher=NEXT_TAG, job=job)
            pipeline.wait_for_progress(pipeline.progress(), "batches and deliveries after an upgrade")
    pipeline.assert_exact()
    images = {
        container["image"]
        for name in SERVICES
        for pod in pipeline.pods(name)
        for container in pod["spec"]["containers"]
    }
    assert images == {f"spark-outbox/{name}:{NEXT_TAG}" for name in SERVICES}

    pipeline.cluster.helm("uninstall", "outbox", "--namespace=outbox", "--wait")
    pipeline.wait_until(
        lambda: {each["kind"] for each in ours(pipeline)} <= {"Job", "Pod"}, "the end of it all"
    )


def upgrade(pipeline: Pipeline, folder: Path, *, publisher: str, job: str) -> None:
    """Install the chart, or upgrade it, as docs/kubernetes.md says; return when the new pods are ready."""
    values = folder / "values.json"
    values.write_text(
        json.dumps(
            {
                "publisher": {
                    "image": f"spark-outbox/publisher:{publisher}",
                    "replicas": 1,
                    "resources": _LITTLE_CPU,
                },
                "sparkJob": {"image": f"spark-outbox/spark-job:{job}", "resources": _LITTLE_CPU},
                "network": {"postgres": _SERVERS, "kafka": _SERVERS, "kafkaPort": 9092},
            }
        ),
        "utf-8",
    )
    pipeline.cluster.helm(
        *("upgrade", "--install", "outbox", str(ROOT / "deploy/helm/spark-outbox"), "--namespace=outbox"),
        *(f"--values={values}", f"--set-file=settings={OVERLAY / 'outbox.toml'}", "--timeout=10m"),
    )
    pipeline.wait_for_rollouts()


def ours(pipeline: Pipeline) -> list[dict[str, str]]:
    """What of the installation is there."""
    found: list[dict[str, str]] = pipeline.cluster.read(_KINDS, "--namespace=outbox", _OURS)["items"]
    return found
