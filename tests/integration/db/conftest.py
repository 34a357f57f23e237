"""Databases for the tests of the schema."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from devstack.databases import PostgresServer
from devstack.postgres import Postgres
from tests.support.outbox.audited import fill_audited_outbox
from tests.support.outbox.valid_rows import OutboxRows


@pytest.fixture
def outbox(database: str) -> Iterator[OutboxRows]:
    """A new database with the schema and no rows."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield OutboxRows(database, connection)


@pytest.fixture(scope="module")
def module_outbox(postgres: PostgresServer, template_database: str) -> Iterator[OutboxRows]:
    """A database for the tests of one module, that load much and change nothing."""
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name, template=template_database)
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield OutboxRows(dsn, connection)
    postgres.drop_database(name)


@pytest.fixture
def blank_database(postgres: PostgresServer) -> Iterator[str]:
    """DSN of a new database without the schema."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server on which no other outbox uses the roles."""
    server = Postgres(tmp_path_factory.mktemp("own") / "postgres", fast=True)
    server.start()
    yield server
    server.destroy()


@pytest.fixture
def audited_outbox(outbox: OutboxRows) -> OutboxRows:
    """An outbox of its own in which everything agrees, to change."""
    fill_audited_outbox(outbox)
    return outbox


@pytest.fixture(scope="module")
def shared_audited_outbox(module_outbox: OutboxRows) -> OutboxRows:
    """An outbox in which everything agrees, to look at."""
    fill_audited_outbox(module_outbox)
    return module_outbox
