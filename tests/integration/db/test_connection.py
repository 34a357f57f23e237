"""What every connection of both services is, whatever server, database or DSN say: a commit is confirmed once it is durable."""

import os
import socket

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from db.connection import connect
from service.errors import DatabaseMissingError, UnavailableError
from service.settings import PostgresSettings


@pytest.mark.guarantee(38)
@pytest.mark.parametrize(
    "options", ["", "?options=-c%20synchronous_commit%3Doff"], ids=["database", "and DSN"]
)
def test_a_commit_is_durable_although_the_database_or_the_dsn_says_it_need_not_be(
    database: str, options: str
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as admin:
        for setting in (
            sql.SQL("synchronous_commit = off"),
            sql.SQL("default_transaction_isolation = 'serializable'"),
        ):
            admin.execute(sql.SQL("ALTER DATABASE {} SET {}").format(sql.Identifier(str(name)), setting))
    settings = PostgresSettings(dsn=SecretStr(database + options), lock_timeout_ms=1_234)
    with connect(settings, "a service") as connection:
        shown = {
            name: connection.execute("SELECT current_setting(%s)", [name]).fetchone()
            for name in (
                "synchronous_commit",
                "transaction_isolation",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "application_name",
            )
        }
    assert shown == {
        "synchronous_commit": ("on",),
        "transaction_isolation": ("read committed",),
        "lock_timeout": ("1234ms",),
        "idle_in_transaction_session_timeout": ("1min",),
        "application_name": ("a service",),
    }


def test_outputs_are_compressed_by_lz4_where_the_server_has_it_unless_an_administrator_chose(
    database: str,
) -> None:
    settings = PostgresSettings(dsn=SecretStr(database))
    chosen = "SELECT current_setting('default_toast_compression')"
    with psycopg.connect(database, autocommit=True) as admin:
        offered = admin.execute(
            "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"
        ).fetchone()
        assert offered is not None
        with connect(settings, "a service") as connection:
            assert connection.execute(chosen).fetchone() == ("lz4" if "lz4" in offered[0] else "pglz",)
        name = sql.Identifier(str(psycopg.conninfo.conninfo_to_dict(database)["dbname"]))
        admin.execute(sql.SQL("ALTER DATABASE {} SET default_toast_compression = 'pglz'").format(name))
    with connect(settings, "a service") as connection:
        assert connection.execute(chosen).fetchone() == ("pglz",)


def test_a_database_that_is_not_there_is_told_from_a_server_that_does_not_answer(
    database: str,
) -> None:
    missing = PostgresSettings(dsn=SecretStr(psycopg.conninfo.make_conninfo(database, dbname="nowhere")))
    with pytest.raises(DatabaseMissingError, match="it has no database 'nowhere'") as refused:
        connect(missing, "a service")
    assert refused.value.exit_code == 3
    # The server names a role that does not exist in the same way as a database.
    stranger = psycopg.conninfo.make_conninfo(database, user="nowhere", dbname="nowhere")
    with pytest.raises(UnavailableError) as unknown:
        connect(PostgresSettings(dsn=SecretStr(stranger)), "a service")
    assert not isinstance(unknown.value, DatabaseMissingError)
    away = psycopg.conninfo.make_conninfo(database, host="127.0.0.1", hostaddr="127.0.0.1", port=1)
    with pytest.raises(UnavailableError) as gone:
        connect(PostgresSettings(dsn=SecretStr(away)), "a service")
    assert not isinstance(gone.value, DatabaseMissingError)


def test_each_side_notices_within_half_a_minute_that_the_other_one_vanished(database: str) -> None:
    """A client that is gone in the middle of a COPY must not hold the writer lock for the two hours that TCP takes by itself."""
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    with connect(PostgresSettings(dsn=SecretStr(database)), "a service") as connection:
        assert not connection.info.host.startswith("/"), "a Unix socket has none of this"
        server = {name: connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names}
        with socket.socket(fileno=os.dup(connection.fileno())) as client:
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
            assert [client.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3, 30_000]
    assert server == dict(zip(names, [("10",), ("5",), ("3",), ("30000",)], strict=True))
