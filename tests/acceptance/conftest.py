"""A pipeline for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.migrate import upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.pipeline.pipeline import Pipeline


@pytest.fixture
def pipeline(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    """A database and topics of its own; neither service runs yet, the consumers do."""
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path) as made:
        yield made


@pytest.fixture
def own_postgres(own_postgres: Postgres) -> Postgres:
    """A server that the test may stop, with the schema in its database `postgres`."""
    upgrade(own_postgres.dsn())
    return own_postgres
