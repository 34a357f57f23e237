"""`outbox-migrate check` on real servers: one that fits, and each thing that does not."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from db.migrate import upgrade
from devstack.databases import PostgresServer
from devstack.postgres import Postgres
from tests.support.queries import query

Through = Callable[[str, str], str]


def check(dsn: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, {check: its result} and what stands on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "db.cli", "check", "--json", *arguments],
        env=os.environ | {"OUTBOX_POSTGRES__DSN": dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["checks"] if done.stdout else []
    return done.returncode, {each["name"]: each for each in found}, done.stderr


@pytest.fixture
def guest(postgres: PostgresServer, blank_database: str) -> Iterator[str]:
    """DSN of a login without any right on the blank database."""
    name = f"guest_{uuid.uuid4().hex}"
    query(blank_database, f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
    yield make_conninfo(blank_database, user=name, password="guest")
    query(blank_database, f"DROP OWNED BY {name}")
    query(blank_database, f"DROP ROLE {name}")


def test_a_server_that_fits(blank_database: str) -> None:
    code, found, errors = check(blank_database)
    # What tests run on need not survive a crash.
    wrong = {name for name, each in found.items() if each["outcome"] not in ("ok", "warning")}
    assert wrong <= {"durability", "connections"}, (found, errors)
    assert code == (16 if wrong else 0)
    assert len(found) == 10


def test_it_leaves_nothing_behind(blank_database: str) -> None:
    check(blank_database)
    assert query(blank_database, "SELECT count(*) FROM pg_namespace WHERE nspname = 'outbox'") == [(0,)]


def test_after_the_migration_too(blank_database: str) -> None:
    upgrade(blank_database)
    _, found, _ = check(blank_database)
    assert "owns the schema" in found["rights"]["found"]
    assert found["locks"]["outcome"] == "ok"


def test_a_login_that_may_not_make_the_schema(guest: str) -> None:
    code, found, _ = check(guest)
    assert code == 16
    assert found["rights"]["outcome"] == "failed"
    assert "GRANT CREATE ON DATABASE" in found["rights"]["remedy"]


def test_a_service_needs_no_right_to_migrate(blank_database: str, guest: str) -> None:
    upgrade(blank_database)
    code, found, errors = check(guest)
    assert found["rights"]["outcome"] == "failed", (code, errors)
    login = psycopg.conninfo.conninfo_to_dict(guest)["user"]
    with psycopg.connect(blank_database, autocommit=True) as admin:
        admin.execute(sql.SQL("GRANT outbox_writer TO {}").format(sql.Identifier(str(login))))
    assert check(guest)[1]["rights"]["outcome"] == "ok"


def test_a_login_with_few_connections(blank_database: str, guest: str) -> None:
    login = psycopg.conninfo.conninfo_to_dict(guest)["user"]
    query(blank_database, f"ALTER ROLE {login} CONNECTION LIMIT 3")
    _, found, _ = check(guest)
    assert found["connections"]["outcome"] == "failed"
    assert f"3 left by connection limit of {login}" in found["connections"]["found"]


def test_an_encoding_that_loses_letters(postgres: PostgresServer, blank_database: str) -> None:
    name = f"test_{uuid.uuid4().hex}"
    query(blank_database, f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    code, found, _ = check(make_conninfo(blank_database, dbname=name))
    assert (code, found["encoding"]["outcome"]) == (16, "failed")
    postgres.drop_database(name)


def test_a_database_that_is_read_only(postgres: PostgresServer, blank_database: str) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(blank_database)["dbname"])
    query(blank_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    code, found, _ = check(blank_database)
    assert (code, found["writable"]["outcome"]) == (16, "failed")


def test_the_identity_of_the_server_needs_a_right(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "postgres", fast=True)
    server.start()
    try:
        dsn = server.create_database("strict")
        query(dsn, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        query(dsn, "CREATE ROLE guest LOGIN PASSWORD 'guest'")
        code, found, _ = check(make_conninfo(dsn, user="guest", password="guest"))
        assert (code, found["identity"]["outcome"]) == (16, "failed")
        assert "pg_control_system" in found["identity"]["remedy"]
        # Without fsync, as tests run it.
        assert found["durability"]["outcome"] == "failed"
    finally:
        server.destroy()


def test_a_pooler_that_keeps_sessions(blank_database: str, through_pgbouncer: Through) -> None:
    _, found, errors = check(through_pgbouncer(blank_database, "session"))
    assert "pooler" in found["sessions"]["found"], errors
    assert found["notifications"]["outcome"] == "ok"


def test_a_pooler_that_does_not(blank_database: str, through_pgbouncer: Through) -> None:
    code, found, errors = check(through_pgbouncer(blank_database, "transaction"))
    assert (code, found) == (2, {})
    assert "pool_mode = session" in errors


def test_a_server_that_is_not_there() -> None:
    code, _, errors = check("postgresql://localhost:1/outbox")
    assert code == 6
    assert "localhost:1" in errors
