"""A login of each role is refused what the other roles' statements may do, all of them, and allowed its own."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

from db.migrate import ROLES
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.query_files import QueryFile
from tests.support.rights.declared import (
    AUDITOR,
    CALLABLE,
    CHECKED,
    ERASER,
    INSERTABLE,
    OF_THE_OWNER,
    PUBLISHER,
    READABLE,
    READS,
    RETENTION,
    VIEWS,
    WRITER,
)
from tests.support.rights.statements import STATEMENTS, attempt, named, role_of, writes

Statement = tuple[QueryFile, str]
SERVICES = ("spark_job", "publisher", "db")

SHARED: set[tuple[str, Statement]] = {
    *((role, (QueryFile("db", "operations"), "record")) for role in (WRITER, RETENTION, ERASER)),
    # They read no other columns than the positions that retention may read.
    (RETENTION, (QueryFile("publisher", "parked"), "counts")),
    (RETENTION, (QueryFile("publisher", "ledger"), "end")),
    (RETENTION, (QueryFile("publisher", "storage"), "storage")),
    (RETENTION, (QueryFile("publisher.audit", "ledger"), "scope")),
    # Which outbox it archives, and what of it.
    (RETENTION, (QueryFile("publisher.archive", "archive"), "identity")),
    (RETENTION, (QueryFile("publisher.archive", "archive"), "dropped")),
    (RETENTION, (QueryFile("spark_job", "ledger"), "outbox_uuid")),
}
"""Statements that more than one role may run, besides those that only read what the other may read whole."""


@pytest.fixture(scope="module", params=ROLES)
def login(module_outbox: OutboxRows, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A role, and the DSN of a login with this role and no more."""
    role: str = request.param
    name = sql.Identifier(f"login_{role}")
    owner = module_outbox.connection
    owner.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(name))
    owner.execute(
        sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'test' IN ROLE {}").format(name, sql.Identifier(role))
    )
    yield role, psycopg.conninfo.make_conninfo(module_outbox.dsn, user=f"login_{role}", password="test")
    owner.execute(sql.SQL("DROP ROLE {}").format(name))


def may(role: str, statement: Statement) -> bool:
    """Whether a role may run a statement, by what is declared."""
    file, name = statement
    query = file.load()[name]
    if role_of(file, name) == role or (role, statement) in SHARED:
        return True
    if writes(query):
        return False
    functions = named(query) & OF_THE_OWNER.union(*CALLABLE.values())
    relations = named(query) - functions
    # The auditor reads every view, the others those that are theirs.
    return functions <= CALLABLE[role] and (role == AUDITOR or relations <= READABLE[role] | VIEWS[role])


@pytest.mark.guarantee(105)
def test_a_login_may_run_its_roles_statements_and_of_the_others_only_what_it_shares(
    login: tuple[str, str],
) -> None:
    role, dsn = login
    wrong: list[str] = []
    tried = refused = 0
    with psycopg.connect(dsn) as connection:
        for statement in STATEMENTS:
            file, name = statement
            query = file.load()[name]
            if file.package.partition(".")[0] not in SERVICES or not named(query):
                continue
            tried += 1
            allowed = True
            try:
                with connection.transaction(force_rollback=True):
                    attempt(connection, query)
            except errors.InsufficientPrivilege:
                allowed = False
                refused += 1
            if allowed != may(role, statement):
                wrong.append(f"{file.package}/{file.subject}/{name}: {'allowed' if allowed else 'refused'}")
    assert wrong == []
    assert tried > 200
    assert refused > 50, f"{role} is refused {refused} of {tried}"


def test_a_function_that_writes_is_one_roles_unless_both_need_it() -> None:
    shared = {
        name
        for name in set().union(*CALLABLE.values()) - READS - CHECKED
        if sum(name in CALLABLE[role] for role in ROLES) > 1
    }
    assert shared == {"ensure_partitions", "prune_deliveries", "letters_kept", "wake"}
    assert CALLABLE[AUDITOR] - READS - CHECKED == {"audit_reconcile", "letters_kept"}
    assert INSERTABLE[RETENTION] == {"operation"}
    assert not INSERTABLE[PUBLISHER] & INSERTABLE[WRITER] - {"operation"}
