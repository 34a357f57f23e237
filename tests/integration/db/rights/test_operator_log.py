"""The operator log: what the database says of who it was, one transaction with the change, and nobody rewrites it."""

import getpass
import os
import pwd
import socket
from contextlib import suppress
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors, sql

from db import operations
from db.migrate import HEAD, ROLES, downgrade, upgrade
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.queries import query

WRITER, PUBLISHER, AUDITOR, RETENTION, _ = ROLES


def logged(outbox: OutboxRows) -> list[tuple[object, ...]]:
    return outbox.rows("SELECT command, arguments, result FROM outbox.audit_operation")


def test_a_row_says_who_when_and_what(outbox: OutboxRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    with outbox.connection.transaction():
        operations.record(outbox.connection, "publisher lanes set", {"lanes": 4}, {"epoch": 2})
    assert outbox.rows(
        """SELECT login, client IS NULL OR host(client) = '127.0.0.1', os_user, host, command, arguments, result,
                  now() - at < interval '1 minute'
           FROM outbox.audit_operation"""
    ) == [
        (
            outbox.value("SELECT session_user::text"),
            True,
            pwd.getpwuid(os.geteuid()).pw_name,
            socket.gethostname(),
            "publisher lanes set",
            {"lanes": 4},
            {"epoch": 2},
            True,
        )
    ]
    assert getpass.getuser() == "somebody-else"


def test_a_machine_without_names_is_recorded(outbox: OutboxRows, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.setattr(socket, "gethostname", lambda: "")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with outbox.connection.transaction():
        operations.record(outbox.connection, "publisher lanes set", {"lanes": 4})
    assert outbox.rows("SELECT os_user, host FROM outbox.operation") == [(str(os.geteuid()), "unnamed")]


def test_a_change_that_is_rolled_back_leaves_no_row_and_a_row_that_fails_no_change(
    outbox: OutboxRows,
) -> None:
    with outbox.connection.transaction(force_rollback=True):
        operations.record(outbox.connection, "publisher lanes set", {"lanes": 4})
    assert logged(outbox) == []
    outbox.connection.execute("ALTER TABLE outbox.operation ADD CONSTRAINT refuses CHECK (command <> 'x')")
    with suppress(errors.CheckViolation), outbox.connection.transaction():
        outbox.insert("lane_epoch")
        operations.record(outbox.connection, "x", {})
    assert outbox.value("SELECT count(*) FROM outbox.lane_epoch") == 0


def test_outside_a_transaction_nothing_is_recorded(outbox: OutboxRows) -> None:
    with pytest.raises(RuntimeError, match="in the transaction of its change"):
        operations.record(outbox.connection, "publisher lanes set", {})
    assert logged(outbox) == []


def test_texts_that_jsonb_refuses_and_long_ones_are_recorded(outbox: OutboxRows) -> None:
    arguments = {
        "topic": "a\0b\udcff",
        "ids": list(range(1_000)),
        "why": "x" * 5_000,
        "none": None,
        "off": False,
    }
    with outbox.connection.transaction():
        operations.record(outbox.connection, "publisher parked park", arguments)
    ((_, found, result),) = logged(outbox)
    assert found == {
        "topic": "a\\x00b\\udcff",
        "ids": [*range(100), "… 900 more"],
        "why": "x" * 1_000 + "…",
    }
    assert result == {}


@pytest.mark.parametrize("role", [WRITER, PUBLISHER])
@pytest.mark.parametrize(
    ("column", "value"), [("login", "somebody"), ("at", "2020-01-01"), ("client", "192.0.2.1")]
)
def test_who_and_when_are_not_the_clients_to_say(
    outbox: OutboxRows, role: str, column: str, value: str
) -> None:
    with outbox.connection.transaction(force_rollback=True):
        outbox.connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        with pytest.raises(errors.InsufficientPrivilege):
            outbox.insert("operation", **{column: value})


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO outbox.operation (operation_id, os_user) OVERRIDING SYSTEM VALUE VALUES (1, 'u')",
        "UPDATE outbox.operation SET command = 'c'",
        "DELETE FROM outbox.operation",
        "TRUNCATE outbox.operation",
        "UPDATE outbox.audit_operation SET command = 'c'",
        "DELETE FROM outbox.audit_operation",
        "SELECT setval(pg_get_serial_sequence('outbox.operation', 'operation_id'), 1)",
    ],
)
def test_no_role_rewrites_the_log(outbox: OutboxRows, role: str, statement: LiteralString) -> None:
    outbox.insert("operation")
    with outbox.connection.transaction(force_rollback=True):
        outbox.connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        with pytest.raises(errors.InsufficientPrivilege):
            outbox.connection.execute(statement)


def test_a_login_that_becomes_its_role_is_still_named(outbox: OutboxRows) -> None:
    """`SET ROLE` changes `current_user`; the log has the login."""
    outbox.connection.execute("CREATE ROLE log_test_ann LOGIN IN ROLE outbox_publisher")
    try:
        with psycopg.connect(outbox.dsn, user="log_test_ann") as ann:
            ann.execute("SET ROLE outbox_publisher")
            operations.record(ann, "publisher lanes set", {"lanes": 4})
    finally:
        outbox.connection.execute("DROP ROLE log_test_ann")
    assert outbox.rows("SELECT login FROM outbox.operation") == [("log_test_ann",)]


def test_migrations_are_recorded_with_their_transaction(blank_database: str) -> None:
    upgrade(blank_database)
    downgrade(blank_database, "0010")
    upgrade(blank_database)
    found = query(blank_database, "SELECT command, result FROM outbox.operation ORDER BY operation_id")
    assert found == [
        ("outbox-migrate up", {"revision": revision})
        for revision in (f"{number:04}" for number in range(11, int(HEAD) + 1))
    ]


def test_the_newest_operations_are_read_by_the_key(outbox: OutboxRows) -> None:
    for _ in range(3):
        outbox.insert("operation")
    outbox.connection.execute("SET enable_seqscan = off")
    plan = outbox.rows("EXPLAIN SELECT * FROM outbox.audit_operation LIMIT 2")
    assert "Backward" in str(plan)
    newest, second = (
        number for (number,) in outbox.rows("SELECT operation_id FROM outbox.audit_operation LIMIT 2")
    )
    assert newest == second + 1 == outbox.value("SELECT max(operation_id) FROM outbox.operation")
