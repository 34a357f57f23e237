"""The publisher's matrix, its scenarios and its own servers."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devstack.kafka import KafkaServer
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PAGE
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.proxies.kafka import KafkaProxy, Link
from tests.support.servers.proxied_kafka import ProxiedKafka


@pytest.fixture(scope="session")
def matrix(matrices: list[Matrix], servers: dict[str, str]) -> Matrix:
    """The publisher's, of the whole run."""
    matrices.append(Matrix(PAGE, servers=servers))
    return matrices[-1]


@pytest.fixture
def set_up(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[SetUp]:
    """Makes the test's scenario, on the run's servers unless told otherwise."""
    with ExitStack() as stack:

        def make(
            dsn: str = database, bootstrap: str = kafka.bootstrap_servers, **options: Any
        ) -> PublisherScenario:
            topic = f"{topic_prefix}events"
            return stack.enter_context(
                PublisherScenario(dsn, bootstrap, topic, tmp_path / "scenario", **options)
            )

        yield make


@pytest.fixture(scope="session")
def proxy() -> Iterator[KafkaProxy]:
    """In front of `own_kafka`."""
    with KafkaProxy() as running:
        yield running


@pytest.fixture(scope="session")
def running_kafka(proxy: KafkaProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    """Behind `own_kafka`."""
    server = ProxiedKafka(tmp_path_factory.mktemp("publisher-faults") / "kafka", proxy)
    server.start()
    yield server
    server.destroy()


@pytest.fixture
def own_kafka(running_kafka: ProxiedKafka, proxy: KafkaProxy) -> Iterator[ProxiedKafka]:
    """A broker that a test may kill, reached through `proxy`; it runs again, and the network is good, for the next one."""
    running_kafka.start()
    yield running_kafka
    proxy.set_link(Link())
    running_kafka.start()
