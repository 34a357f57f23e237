"""What docs/kubernetes.md says to apply, on a real API server and a real node: the clickstream comes out exactly."""

import os
import subprocess
import sys

import pytest

from examples.clickstream.topics import CLICKS
from tests.support.cluster.pipeline import BOOTSTRAP, Pipeline
from tests.support.paths import ROOT
from tests.support.reading import end_offsets

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3_600)]

_SAMPLE_EVENTS = 38_316


def test_every_object_is_applied_without_a_warning(pipeline: Pipeline) -> None:
    """Of the API server, which validates strictly, and knows the Pod Security Standard of the namespace."""
    assert pipeline.applied.stderr == ""
    assert len(pipeline.applied.stdout.splitlines()) == 12


def test_the_namespace_refuses_a_pod_that_is_root(servers: Pipeline) -> None:
    refused = servers.cluster.asked(
        "--namespace=outbox", "run", "root", "--image=spark-outbox/publisher:test", check=False
    )
    assert refused.returncode != 0
    assert 'violates PodSecurity "restricted' in refused.stderr
    assert "runAsNonRoot" in refused.stderr


def test_the_clickstream_comes_out_exactly(pipeline: Pipeline) -> None:
    loader = [sys.executable, "-m", "examples.clickstream.loader", "--unless-played"]
    environment = os.environ | {"OUTBOX_KAFKA__BOOTSTRAP_SERVERS": BOOTSTRAP}
    subprocess.run(loader, check=True, cwd=ROOT, env=environment)
    assert sum(end_offsets(BOOTSTRAP, [CLICKS], committed=True).values()) == _SAMPLE_EVENTS
    whole = pipeline.assert_exact()
    assert whole.records >= _SAMPLE_EVENTS
    assert len(whole.outputs) > 0
    found = pipeline.audit()
    assert found["clean"], [check for check in found["checks"] if check["result"] != "ok"]
    assert found["counted"]["output_events"] == len(whole.outputs)
