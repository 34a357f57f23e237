"""The writer lock is held by nobody who may not write the outbox, and the release before and this one exclude each other by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from db.connection import Connection, connect
from db.migrate import ROLES
from service.settings import PostgresSettings
from spark_job.ledger import ownership
from tests.support.sink.batches import SinkRun, session

WRITER, PUBLISHER, AUDITOR, RETENTION, _ = ROLES
FORMER = "SELECT pg_advisory_lock(hashtextextended('outbox.writer', 0))"
"""How the release before takes the lock, but for the whole session."""


@contextmanager
def login(dsn: str, role: str | None = None) -> Iterator[str]:
    """The DSN of a login that has that role and no more."""
    name = sql.Identifier(f"login_{uuid4().hex}")
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        if role is not None:
            admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), name))
        try:
            yield make_conninfo(dsn, user=name.as_string().strip('"'))
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(name))


@contextmanager
def job(dsn: str) -> Iterator[Connection]:
    """A connection as the job's, which waits for a lock only briefly."""
    with (
        login(dsn, WRITER) as its,
        connect(
            PostgresSettings(dsn=SecretStr(its), lock_timeout_ms=300), "spark-job", autocommit=True
        ) as made,
    ):
        yield made


@pytest.mark.parametrize("role", [None, AUDITOR])
def test_whoever_may_not_write_stops_no_batch(database: str, role: str | None) -> None:
    with login(database, role) as stranger, psycopg.connect(stranger, autocommit=True) as other:
        other.execute(FORMER)
        with job(database) as connection:
            run = SinkRun(connection)
            run.plan(0, (0, 0), (10, 0))
            assert run.write(0, session("a", 1, 9, [])) is not None


@pytest.mark.parametrize("role", [None, AUDITOR, PUBLISHER])
@pytest.mark.parametrize(
    "statement", ["SELECT outbox.lock_writer()", "SELECT FROM outbox.writer_lock FOR UPDATE"]
)
def test_the_lock_needs_a_grant(database: str, role: str | None, statement: str) -> None:
    with (
        login(database, role) as stranger,
        psycopg.connect(stranger, autocommit=True) as other,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        other.execute(statement)


@pytest.mark.parametrize("role", [WRITER, PUBLISHER])
def test_a_batch_waits_for_a_job_or_a_requeue_of_the_release_before(database: str, role: str) -> None:
    with login(database, role) as its, psycopg.connect(its, autocommit=True) as former:
        former.execute(FORMER)
        with job(database) as connection:
            with pytest.raises(errors.LockNotAvailable), connection.transaction():
                ownership.lock(connection)
            former.execute("SELECT pg_advisory_unlock_all()")
            with connection.transaction():
                ownership.lock(connection)


def test_the_release_before_waits_for_a_batch(database: str) -> None:
    with job(database) as connection, psycopg.connect(database, autocommit=True) as former:
        former.execute("SET lock_timeout = '300ms'")
        with connection.transaction():
            ownership.lock(connection)
            with pytest.raises(errors.LockNotAvailable):
                former.execute(FORMER)
        former.execute(FORMER)


def test_two_batches_exclude_each_other_while_a_stranger_has_the_former_lock(database: str) -> None:
    with login(database) as stranger, psycopg.connect(stranger, autocommit=True) as other:
        other.execute(FORMER)
        with job(database) as one, job(database) as two, one.transaction():
            ownership.lock(one)
            with pytest.raises(errors.LockNotAvailable), two.transaction():
                ownership.lock(two)


def test_every_function_takes_the_lock_in_the_same_way(database: str) -> None:
    """A migration that writes one anew must not bring the former lock back."""
    with psycopg.connect(database) as connection:
        former = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace"
            " AND prosrc LIKE '%advisory_xact_lock%' AND prosrc LIKE '%outbox.writer%'"
        ).fetchall()
        calls = connection.execute(
            "SELECT proname::text FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND prosrc LIKE '%outbox.lock_writer()%'"
            " ORDER BY 1"
        ).fetchall()
    assert former == [("lock_writer",)]
    assert [name for (name,) in calls] == [
        "begin_erasure",
        "change_lanes",
        "erase_letter_at",
        "erase_letters",
        "erase_rows",
        "erase_traces",
        "requeue",
        "rewrite_archived",
    ]
