"""With OUTBOX_TEST_SERVERS=containers the fixtures are containers, with devstack's settings, and one that fails says why."""

import uuid
from dataclasses import replace

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
from tests.support.containers.postgres import ContainerPostgres
from tests.support.engine.engine import Engine
from tests.support.engine.errors import EngineError
from tests.support.engine.owner import OWNER_LABEL, Owner, remove_leftovers

pytestmark = pytest.mark.containers


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


def test_what_a_killed_run_left_is_removed_and_what_others_have_is_not(
    server_engine: Engine, postgres: PostgresServer
) -> None:
    """A container that uses network, volume and image; then the same of an owner whom nobody here can judge."""
    here = Owner.this()
    gone = replace(here, process=replace(here.process, birth="another-boot/1"))
    left = _everything(server_engine, str(gone))
    theirs = _everything(server_engine, str(replace(gone, namespace="elsewhere/1")))
    try:
        remove_leftovers(server_engine)
        assert [thing for thing in left if _exists(server_engine, *thing)] == []
        assert [thing for thing in theirs if not _exists(server_engine, *thing)] == []
        assert postgres.has_database("postgres")
    finally:
        for kind, name in theirs:
            server_engine.run(kind, "rm", name)


def _everything(engine: Engine, owner: str) -> list[tuple[str, str]]:
    name = f"left-{uuid.uuid4().hex}"
    label = f"{OWNER_LABEL}={owner}"
    use = ("--name", name, "--network", name, "--mount", f"type=volume,src={name},dst=/data")
    engine.run("network", "create", "--label", label, name)
    engine.run("volume", "create", "--label", label, name)
    engine.run("container", "create", "--label", label, *use, engine.image(ContainerPostgres.image))
    engine.run("container", "commit", "--change", f"LABEL {label}", name, f"{name}:1")
    return [("container", name), ("network", name), ("volume", name), ("image", f"{name}:1")]


def _exists(engine: Engine, kind: str, name: str) -> bool:
    return engine.run(kind, "inspect", name, check=False).returncode == 0
