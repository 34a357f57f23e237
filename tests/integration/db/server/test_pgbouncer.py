"""Both services behind a PgBouncer: in session mode they are what they are without it, in the others they refuse."""

import threading
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from db.connection import connect
from service.errors import SettingsError, UnavailableError
from service.settings import PostgresSettings

Through = Callable[[str, str], str]

SETTINGS = ("synchronous_commit", "lock_timeout", "idle_in_transaction_session_timeout", "search_path")


def settings_of(dsn: str) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(dsn), lock_timeout_ms=1_234)


def shown(connection: psycopg.Connection[tuple[object, ...]]) -> list[object]:
    rows = [connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in SETTINGS]
    return [row[0] for row in rows if row is not None]


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_session_behind_it_is_what_it_would_be_without(
    database: str, through_pgbouncer: Through, autocommit: bool
) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(name)))
    dsn = through_pgbouncer(database, "session")
    with connect(settings_of(dsn), "a service", autocommit=autocommit) as connection:
        assert shown(connection) == ["on", "1234ms", "1min", "pg_catalog"]
        assert connection.info.transaction_status.name == ("IDLE" if autocommit else "INTRANS")


def test_many_sessions_at_once_have_their_own_locks_and_each_hears_what_it_listens_to(
    database: str, through_pgbouncer: Through
) -> None:
    dsn = through_pgbouncer(database, "session")
    with (
        connect(settings_of(dsn), "one", autocommit=True) as one,
        connect(settings_of(dsn), "other", autocommit=True) as other,
    ):
        one.execute("SELECT pg_advisory_lock(7)")
        assert other.execute("SELECT pg_try_advisory_lock(7)").fetchone() == (False,)
        other.execute("LISTEN outbox_batch")
        one.execute("NOTIFY outbox_batch")
        assert next(other.notifies(timeout=30), None) is not None


@pytest.mark.guarantee(162)
@pytest.mark.parametrize("autocommit", [True, False])
def test_transaction_mode_is_refused_with_a_sentence(
    database: str, through_pgbouncer: Through, autocommit: bool
) -> None:
    dsn = through_pgbouncer(database, "transaction")
    with pytest.raises(SettingsError, match="Set pool_mode = session for this database"):
        connect(settings_of(dsn), "a service", autocommit=autocommit)


@pytest.mark.parametrize("autocommit", [True, False])
def test_statement_mode_is_refused_in_pgbouncers_own_words(
    database: str, through_pgbouncer: Through, autocommit: bool
) -> None:
    dsn = through_pgbouncer(database, "statement")
    with pytest.raises(UnavailableError, match="not allowed in statement pooling mode"):
        connect(settings_of(dsn), "a service", autocommit=autocommit)


def test_transaction_mode_is_refused_while_other_clients_are_busy(
    database: str, through_pgbouncer: Through
) -> None:
    dsn = through_pgbouncer(database, "transaction")
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as client:
            while not stop.is_set():
                client.execute("SELECT 1")

    others = [threading.Thread(target=work) for _ in range(4)]
    for other in others:
        other.start()
    try:
        for _ in range(20):
            with pytest.raises(SettingsError, match="does not keep a server connection for each client"):
                connect(settings_of(dsn), "a service", autocommit=True)
    finally:
        stop.set()
        for other in others:
            other.join()
