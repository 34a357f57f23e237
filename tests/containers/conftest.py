"""The shipped pipeline, up and healthy; and which tests of this folder are about the run at hand."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from devstack.processes.port import ReservedPort
from tests.support.containers.compose_project import Stack
from tests.support.engine.engine import Engine
from tests.support.engine.python_image import python_image
from tests.support.servers.choice import containers_are_wanted

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
