"""`outbox-migrate check`: what the server's own words mean, and how many connections the settings need."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from db.migrate import ROLES
from db.server_check import CHECKS, AskedServer, ServerFacts, connections_needed, explain
from service.commands.checks import CheckAnswer
from service.settings import Settings

FACTS = ServerFacts(
    version_number=170_002,
    version="17.2",
    encoding="UTF8",
    database="outbox",
    login="ann",
    is_standby=False,
    is_read_only=False,
    may_create=True,
    may_make_roles=True,
    roles=[],
    member_of=[],
    owns_schema=None,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    synchronous_standby_names="",
    max_locks=64,
    max_prepared=0,
    max_connections=100,
    reserved=3,
    login_limit=-1,
    database_limit=-1,
    taken=10,
    partitions=0,
    backend_pid=7,
)
NEEDED = 20
JUDGED = ("version", "encoding", "writable", "rights", "durability", "sessions", "connections", "locks")
"""The checks that ask nothing more of the server."""


def answer(name: str, **facts: Any) -> CheckAnswer:
    """What a check says of a server whose facts are these."""
    (check,) = [each for each in CHECKS if each.name == name]
    connection: Any = SimpleNamespace(info=SimpleNamespace(backend_pid=7))
    return check.ask(AskedServer(connection, replace(FACTS, **facts), NEEDED))


@pytest.mark.parametrize("name", JUDGED)
def test_a_server_as_it_should_be(name: str) -> None:
    assert (answer(name).outcome, answer(name).remedy) == ("ok", "")


@pytest.mark.parametrize(
    ("name", "facts", "found", "remedy"),
    [
        ("version", {"version_number": 140_013, "version": "14.13"}, "Postgres 14.13", "15 or newer"),
        ("encoding", {"encoding": "SQL_ASCII"}, "SQL_ASCII", "ENCODING 'UTF8'"),
        ("writable", {"is_standby": True, "is_read_only": True}, "standby", "target_session_attrs"),
        ("writable", {"is_read_only": True}, "read-only", "default_transaction_read_only"),
        ("rights", {"may_create": False}, "may not create", "GRANT CREATE ON DATABASE outbox TO ann"),
        (
            "rights",
            {"may_create": False, "database": "my-outbox", "login": 'a"; DROP'},
            "may not create",
            'GRANT CREATE ON DATABASE "my-outbox" TO "a""; DROP"',
        ),
        ("rights", {"owns_schema": False, "login": "my-app"}, "neither", 'TO "my-app"'),
        ("rights", {"may_make_roles": False}, "may not make roles", "CREATE ROLE outbox_writer NOLOGIN;"),
        ("rights", {"owns_schema": False}, "neither owns it", "GRANT outbox_writer"),
        ("durability", {"fsync": False}, "fsync = off", "fsync = on"),
        ("durability", {"full_page_writes": False}, "full_page_writes = off", "full_page_writes = on"),
        ("connections", {"taken": 78}, "20 needed, 19 left by max_connections", "raise max_connections"),
        ("connections", {"login_limit": 5}, "5 left by connection limit of ann", "raise connection limit"),
        ("connections", {"database_limit": 0}, "0 left by connection limit of database outbox", "raise"),
        ("connections", {"taken": 98}, "0 left by max_connections", "raise max_connections"),
    ],
    ids=str,
)
def test_what_makes_it_unusable_is_named_with_the_way_out(
    name: str, facts: dict[str, Any], found: str, remedy: str
) -> None:
    given = answer(name, **facts)
    assert given.outcome == "failed"
    assert found in given.found
    assert remedy in given.remedy


@pytest.mark.parametrize(
    "facts",
    [
        {"roles": list(ROLES), "may_make_roles": False},
        {"owns_schema": True, "may_create": False, "may_make_roles": False},
        {"owns_schema": False, "member_of": ["outbox_writer"], "may_create": False, "may_make_roles": False},
    ],
    ids=["roles are there", "owner", "service"],
)
def test_rights_that_nobody_needs_any_more_are_not_asked_for(facts: dict[str, Any]) -> None:
    assert answer("rights", **facts).outcome == "ok"


def test_only_the_roles_that_are_missing_are_to_be_made() -> None:
    given = answer("rights", may_make_roles=False, roles=list(ROLES[1:]))
    assert "CREATE ROLE outbox_writer NOLOGIN;" in given.remedy
    assert "outbox_publisher" not in given.remedy


def test_the_replicas_that_commits_wait_for_are_shown() -> None:
    assert "no synchronous replica" in answer("durability").found
    assert "'ANY 1 (a, b)'" in answer("durability", synchronous_standby_names="ANY 1 (a, b)").found


def test_a_pooler_shows_by_the_process_that_answers() -> None:
    assert answer("sessions").found == "a server connection of its own"
    assert "pooler" in answer("sessions", backend_pid=8).found


def test_locks_are_too_few_for_many_partitions_only() -> None:
    assert answer("locks", partitions=2_133).outcome == "ok"
    given = answer("locks", partitions=2_134)
    assert (given.outcome, "max_locks_per_transaction" in given.remedy) == ("warning", True)
    assert answer("locks", partitions=2_134, max_locks=128).outcome == "ok"


@pytest.mark.parametrize(
    ("changed", "publishers", "connections"),
    [
        ({}, 1, 2 + 3 + 8),
        ({}, 3, 2 + 9 + 8),
        ({"publisher": {"lanes": 32}}, 2, 2 + 6 + 32),
        ({"metrics": {"port": 9464}}, 2, 3 + 8 + 8),
        ({"metrics": {"port": 9464, "job_port": 0}}, 2, 2 + 8 + 8),
        ({"console": {"port": 8080}}, 2, 2 + 14 + 8),
    ],
    ids=str,
)
def test_connections_are_counted_from_the_settings(
    changed: dict[str, Any], publishers: int, connections: int
) -> None:
    assert connections_needed(Settings(**changed), publishers) == connections


def test_a_refused_statement_fails_its_check_and_a_lost_server_the_command() -> None:
    refused = explain(
        psycopg.errors.InsufficientPrivilege("permission denied for function pg_control_system")
    )
    assert refused is not None
    assert (refused.outcome, "pg_control_system" in refused.found) == ("failed", True)
    assert explain(psycopg.errors.AdminShutdown("terminating connection")) is None
    assert explain(ValueError("a bug")) is None
