"""Real servers for the tests: one Postgres and one Kafka per run, started when the first test asks for them.

OUTBOX_POSTGRES__DSN and OUTBOX_KAFKA__BOOTSTRAP_SERVERS name other ones to use instead, and
OUTBOX_TEST_SERVERS=containers makes them containers (tests/containers/README.md). A server that cannot be had is an error,
never a skip: a run that tested nothing must not look green.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import psycopg
import pytest
import structlog

from devstack.databases import PostgresServer
from devstack.kafka import Kafka, KafkaServer
from devstack.postgres import Postgres
from devstack.stack import external_kafka, external_postgres
from service.kafka import transport
from service.observability import logs
from tests.support.servers.choice import containers_are_wanted
from tests.support.servers.memory import folder_in_memory

# How long an example takes says something of the machine only.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

pytest_plugins = [
    "tests.support.containers.fixtures",
    "tests.support.containers.scheduling",
    "tests.support.servers.pgbouncer",
]

# Two workers of one run may share a server.
TEMPLATE_DATABASE = f"outbox_template_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"


@pytest.fixture(autouse=True)
def logs_of_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loggers follow the configuration of now, not of the test that first used them."""
    configure, before = structlog.configure, structlog.get_config()
    monkeypatch.setattr(
        structlog, "configure", lambda **given: configure(**given | {"cache_logger_on_first_use": False})
    )
    monkeypatch.setattr(logs, "_lost_lines", 0)
    monkeypatch.setattr(transport, "_named", set())
    yield
    configure(**before)


@pytest.fixture(scope="session")
def postgres(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresServer]:
    """The run's Postgres server. Make a database of your own on it (see `database`); do not stop it."""
    external = external_postgres()
    if external is not None:
        yield external
        return
    if containers_are_wanted(os.environ):
        yield request.getfixturevalue("container_postgres")
        return
    with folder_in_memory(tmp_path_factory.mktemp("devstack")) as folder:
        server = Postgres(folder / "postgres", fast=True)
        server.start()
        yield server
        server.destroy()


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """The run's Kafka. Make topics of your own on it (see `topic_prefix`); do not stop it."""
    external = external_kafka()
    if external is not None:
        yield external
        return
    if containers_are_wanted(os.environ):
        yield request.getfixturevalue("container_kafka")
        return
    server = Kafka(tmp_path_factory.mktemp("devstack") / "kafka", fast=True)
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def template_database(postgres: PostgresServer) -> str:
    """Name of a database with the migrated schema and no rows, to clone."""
    from db.migrate import upgrade

    # An external server may still have the one of an earlier run, with another schema.
    postgres.drop_database(TEMPLATE_DATABASE)
    dsn = postgres.create_database(TEMPLATE_DATABASE)
    upgrade(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM outbox.operation")
    return TEMPLATE_DATABASE


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[Postgres]:
    """A Postgres that the test may kill, without a schema."""
    server = Postgres(tmp_path / "postgres", fast=True)
    with ExitStack() as cleanup:
        cleanup.callback(server.destroy)
        server.start()
        yield server


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A broker that the test may kill."""
    server = Kafka(tmp_path / "kafka", fast=True)
    with ExitStack() as cleanup:
        cleanup.callback(server.destroy)
        server.start()
        yield server


@pytest.fixture
def new_database(postgres: PostgresServer, template_database: str) -> Iterator[Callable[[], str]]:
    """Makes an outbox and returns its DSN, as often as it is called; they are dropped after the test.

    Each has a uuid of its own, or the tests would share progress topics.
    """
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


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """DSN of a new outbox, dropped after the test."""
    return new_database()


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topic names, group ids and transactional ids that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}-"
