"""An outbox on a database of its own, with an output topic of its own."""

from collections.abc import Iterator

import pytest

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import Settings
from tests.support.outbox.audits import delivered_outbox
from tests.support.outbox.batches import Outbox
from tests.support.processes.publishers import settings_for
from tests.support.watching import Watcher


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An output topic with three partitions."""
    name = f"{topic_prefix}events"
    create_topics(kafka.bootstrap_servers, {name: (3, {})})
    return name


@pytest.fixture
def outbox(database: str, topic: str) -> Outbox:
    """An empty outbox with two lanes."""
    return Outbox(database, topic)


@pytest.fixture
def settings(outbox: Outbox, kafka: KafkaServer) -> Settings:
    """Settings of a publisher for that outbox."""
    return settings_for(outbox.dsn, kafka.bootstrap_servers)


@pytest.fixture
def watcher(kafka: KafkaServer, topic: str) -> Iterator[Watcher]:
    """A read_committed consumer that watches the output topic during the whole test."""
    with Watcher(kafka.bootstrap_servers, topic, tolerant=True) as running:
        yield running


@pytest.fixture(scope="module")
def delivered(
    postgres: PostgresServer, template_database: str, kafka: KafkaServer
) -> Iterator[tuple[Settings, Outbox]]:
    """Four batches of five keys that were delivered, by two lanes. Its topic is not to be changed."""
    with delivered_outbox(postgres, template_database, kafka.bootstrap_servers) as found:
        yield found
