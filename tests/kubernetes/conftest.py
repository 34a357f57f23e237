"""A node for the whole run, and the shipped pipeline on it."""

import os
from collections.abc import Iterator

import pytest

from tests.support.cluster import images
from tests.support.cluster.binaries import cluster_cache, programs
from tests.support.cluster.cluster import Cluster, running
from tests.support.cluster.pipeline import EXAMPLE, Pipeline
from tests.support.engine.engine import open_engine
from tests.support.engine.terminal import line_writer


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The node, with every image. That there can be none is an error, never a skip. The tests are in its network."""
    say = line_writer(request)
    with running(cluster_cache(), say) as node:
        with open_engine(os.environ, say) as engine:
            images.hand_over(engine, images.build(engine, programs(cluster_cache(), say)), node)
        node.kubectl("--namespace", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=10m")
        with node.network():
            yield node


@pytest.fixture(scope="session")
def servers(cluster: Cluster) -> Pipeline:
    """Postgres and Kafka, and the namespace and the Secrets of the pipeline."""
    made = Pipeline(cluster)
    made.start_servers()
    cluster.kubectl("apply", "--filename", str(EXAMPLE / "namespace.yaml"))
    made.write_secrets()
    return made


@pytest.fixture(scope="session")
def pipeline(servers: Pipeline) -> Pipeline:
    """The pipeline, as kustomize builds it, up and ready."""
    servers.install()
    return servers
