"""The shipped pipeline, up and healthy; and which tests of this folder are about the run at hand."""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from devstack.processes.port import ReservedPort
from spark_job.spark.jars import cache_dir
from tests.support.containers.compose_project import Stack
from tests.support.engine.engine import Engine
from tests.support.engine.stand_ins import PYTHON
from tests.support.servers.choice import containers_are_wanted

_WARM = "spark-outbox/python-with-wheels:3.11-slim-bookworm"
# pip uses a cached wheel for a pinned source package since 23.1; the official image has 24.0, a stand-in may have Debian's 23.0.
# A pip from the index trusts its own certificates only, so it is told those of the system.
_RECIPE = """\
ARG BASE
FROM $BASE
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_CACHE_DIR=/var/cache/pip
RUN pip install --disable-pip-version-check --root-user-action ignore pip==24.0
COPY wheels /var/cache/pip/wheels
"""


def python_image(engine: Engine) -> str:
    """Name an image to build on. pyspark is published as source only, and to build its wheel of 450 MB takes minutes.

    Where this machine's pip has no such wheel, the official image does, only more slowly.
    """
    wheels = cache_dir().parents[1] / "pip" / "wheels"
    found = [path.parent for path in wheels.rglob("pyspark-*.whl") if (path.parent / "origin.json").exists()]
    if not found:
        return engine.image(PYTHON)
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        (context / "Dockerfile").write_text(_RECIPE, "utf-8")
        for each in found:
            shutil.copytree(each, context / "wheels" / each.relative_to(wheels))
        base = f"BASE={engine.image(PYTHON)}"
        engine.run(
            *("build", "--network", "host", "--build-arg", base, "--tag", _WARM, str(context)), timeout_s=600
        )
    return _WARM


# On containers: what the servers are. Else: the part of the suite that runs on them.
collect_ignore = ["test_suite.py"] if containers_are_wanted(os.environ) else ["test_servers.py"]


@pytest.fixture(scope="module")
def stack(compose_engine: Engine, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Build the images and bring everything up, as a user does. Everything is removed after the tests.

    A module's FILES go after the shipped one.
    """
    with ExitStack() as cleanup:
        ports = [ReservedPort() for _ in range(2)]
        for port in ports:
            cleanup.callback(port.close)
        kafka_port, postgres_port = (port.number for port in ports)
        made = Stack(
            compose_engine,
            f"spark-outbox-test-{uuid.uuid4().hex[:8]}",
            kafka_port,
            postgres_port,
            python_image(compose_engine),
            getattr(request.module, "FILES", ()),
        )
        cleanup.callback(made.destroy)
        with made.timed("build"):
            made.compose("build")
        with made.timed("up, until everything is healthy"):
            made.compose("up", "--detach", "--no-build")
            made.wait_until_healthy()
        yield made
        print(json.dumps(made.seconds))
