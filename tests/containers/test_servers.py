"""With OUTBOX_TEST_SERVERS=containers the fixtures are containers, with devstack's settings, and one that fails says why."""

import uuid

import psycopg
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from devstack.databases import PostgresServer
from devstack.kafka import ONE_NODE, KafkaServer
from devstack.postgres import FAST, MAX_CONNECTIONS
from tests.containers.postgres import ContainerPostgres
from tests.containers.server import OWNER_LABEL, remove_leftovers
from tests.images.engine import Engine
from tests.images.errors import EngineError


def test_postgres_runs_in_a_container_with_devstacks_settings(postgres: PostgresServer) -> None:
    expected = FAST | {
        "max_connections": str(MAX_CONNECTIONS),
        "server_encoding": "UTF8",
        "data_directory": "/var/lib/postgresql/18/docker",
    }
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        found: dict[str, str] = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
        locale = connection.execute(
            "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = 'template1'"
        ).fetchone()
    assert {name: found[name] for name in expected} == expected
    assert locale == ("b", "C.UTF-8")


def test_kafka_runs_in_a_container_with_devstacks_settings(kafka: KafkaServer) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    resource = ConfigResource(ResourceType.BROKER, ONE_NODE["node.id"])
    answer = client.describe_configs([resource])[resource].result(30)
    found: dict[str, str] = {name: entry.value for name, entry in answer.items()}
    expected = ONE_NODE | {"log.dirs": "/var/lib/kafka/data"}
    assert {name: found[name] for name in expected} == expected


def test_a_container_that_does_not_come_up_is_removed_and_its_log_is_told(server_engine: Engine) -> None:
    class Refusing(ContainerPostgres):
        def arguments(self) -> list[str]:
            return ["-c", "no_such_setting=1"]

    server = Refusing(server_engine)
    with pytest.raises(EngineError, match="no_such_setting"):
        server.start()
    assert server_engine.run("ps", "--all", "--quiet", "--filter", f"publish={server.port}").stdout == ""


def test_what_a_killed_run_left_is_removed_and_what_a_living_one_has_is_not(
    server_engine: Engine, postgres: PostgresServer
) -> None:
    owner = f"--label={OWNER_LABEL}=1@another-boot/1"
    network = server_engine.run("network", "create", owner, f"left-{uuid.uuid4().hex}").stdout.strip()
    container = server_engine.run(
        "create", owner, f"--network={network}", ContainerPostgres.image
    ).stdout.strip()
    remove_leftovers(server_engine)
    assert container not in server_engine.run("ps", "--all", "--quiet", "--no-trunc").stdout
    assert network not in server_engine.run("network", "ls", "--quiet", "--no-trunc").stdout
    assert postgres.has_database("postgres")
