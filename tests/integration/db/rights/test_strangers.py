"""What a login of the server that may do nothing in the outbox cannot stop, whatever database it may enter."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from db.connection import connect
from db.lock_holders import refuse_strangers
from db.migrate import ROLES, upgrade
from db.statements import queries
from devstack.postgres import Postgres
from publisher.erasure.erase import Erasure
from publisher.resume.resume import Resume
from publisher.retention.retention import run_once
from publisher.retention.retention_lock import hold_off_retention
from service.errors import UnavailableError
from service.settings import PostgresSettings, RetentionSettings, Settings
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.query_files import query_files
from tests.support.sink.batches import SinkRun, session


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DSN of an outbox on a server whose queue of notifications is full, and stays so."""
    server = Postgres(
        tmp_path_factory.mktemp("flooded") / "postgres", fast=True, settings={"max_notify_queue_pages": "64"}
    )
    server.start()
    with ExitStack() as stack:
        stack.callback(server.destroy)
        dsn = server.create_database("outbox")
        upgrade(dsn)
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("CREATE ROLE stranger LOGIN")
            owner.execute("REVOKE CONNECT ON DATABASE outbox FROM PUBLIC")
        elsewhere = make_conninfo(server.create_database("elsewhere"), user="stranger")
        listening = stack.enter_context(psycopg.connect(elsewhere, autocommit=True))
        listening.execute("LISTEN anything")
        # The queue keeps what a listener has not read, and one in a transaction does not read.
        listening.execute("BEGIN")
        with psycopg.connect(elsewhere, autocommit=True) as sending, suppress(errors.ProgramLimitExceeded):
            while True:
                sending.execute("SELECT pg_notify('anything', repeat('x', 7000))")
        yield dsn


def login(dsn: str, role: str) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(make_conninfo(dsn, options=f"-c role={role}")))


def test_a_full_queue_of_notifications_stops_no_batch_and_no_publisher(flooded: str) -> None:
    with connect(login(flooded, "outbox_writer"), "spark-job", autocommit=True) as job:
        run = SinkRun(job)
        run.plan(0, (0, 0), (10, 0))
        assert run.write(0, session("a", 1, 9, [])) is not None
    with connect(login(flooded, "outbox_publisher"), "publisher", autocommit=True) as publisher:
        publisher.execute(queries("publisher", "wakeups")["wake_publishers"])
        publisher.execute(queries("publisher", "lanes")["add"], {"epoch": 1, "lanes": 1})
        leases = queries("publisher", "leases")
        mine = {"epoch": 1, "lane": 0, "holder": "me", "lease_s": 60}
        (token,) = publisher.execute(leases["claim"], mine).fetchone() or (None,)
        publisher.execute(leases["release"], {"epoch": 1, "lane": 0, "lease_token": token})
        publisher.execute(queries("publisher", "processes")["end"], {"holder": str(run.run_id)})
        publisher.execute("SELECT outbox.change_lanes(3)")


def test_nothing_but_the_wake_up_notifies(outbox: OutboxRows) -> None:
    functions = outbox.rows(
        "SELECT proname::text FROM pg_proc"
        " WHERE pronamespace = 'outbox'::regnamespace AND pg_get_functiondef(oid) ~* 'notify'"
    )
    assert functions == [("wake",)]
    statements = [text for file in query_files() for text in file.load().values()]
    assert [text for text in statements if "notify" in text.lower()] == []
    assert [text for text in statements if "outbox.wake(" in text] != []


@contextmanager
def holding(dsn: str, lock: str, role: str | None) -> Iterator[psycopg.Connection[Any]]:
    """A session that holds an advisory lock, of a login with that role and no more."""
    name = sql.Identifier(f"login_{uuid4().hex}")
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        if role is not None:
            admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), name))
        try:
            user = name.as_string().strip('"')
            with psycopg.connect(make_conninfo(dsn, user=user), autocommit=True) as holder:
                holder.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (lock,))
                yield holder
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(name))


def retain(connection: psycopg.Connection[Any]) -> None:
    postgres = PostgresSettings(dsn=SecretStr(make_conninfo(connection.info.dsn)))
    run_once(Settings(postgres=postgres, retention=RetentionSettings(keep_s=60)))


def resume(connection: psycopg.Connection[Any]) -> None:
    nothing: Any = None
    Resume(connection, Settings(), nothing).act(nothing, lambda _: True, lambda _: None)


NEEDS: dict[str, tuple[str, Callable[[psycopg.Connection[Any]], object]]] = {
    "retention": ("outbox.retention", retain),
    "an audit, a replay or a resume": ("outbox.retention", hold_off_retention),
    "resume": ("outbox.resume", resume),
    "erase": ("outbox.erasure", lambda connection: Erasure(connection, ["k"])),
    "erase, of retention": ("outbox.retention", lambda connection: Erasure(connection, ["k"]).run(0)),
}


@pytest.mark.parametrize("need", NEEDS)
def test_a_stranger_that_holds_a_lock_is_taken_for_none_of_our_commands(database: str, need: str) -> None:
    lock, command = NEEDS[need]
    with holding(database, lock, None) as stranger, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(UnavailableError) as refused:
            command(connection)
        assert f"pg_terminate_backend({stranger.info.backend_pid})" in str(refused.value)
        assert stranger.info.user in str(refused.value)


@pytest.mark.parametrize("role", ROLES)
def test_whoever_has_a_role_is_no_stranger(database: str, role: str) -> None:
    with holding(database, "outbox.resume", role), psycopg.connect(database, autocommit=True) as connection:
        refuse_strangers(connection, "outbox.resume")
