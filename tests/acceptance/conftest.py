"""A pipeline for each test."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from tests.support.pipeline.pipeline import Pipeline


@pytest.fixture
def pipeline(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    """A database and topics of its own; neither service runs yet, the consumers do."""
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path) as made:
        yield made


@pytest.fixture
def new_database(postgres: PostgresServer, template_database: str) -> Iterator[Callable[[], str]]:
    """Makes an outbox and returns its DSN, as often as it is called: `database` for tests that need several."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{uuid.uuid4().hex}")
        dsn = postgres.create_database(names[-1], template=template_database)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("UPDATE outbox.identity SET outbox_uuid = gen_random_uuid()")
        return dsn

    yield make
    for name in names:
        postgres.drop_database(name)
