"""What every connection of both services is, whatever server, database or DSN say: a commit is confirmed once it is durable."""

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from db.connection import connect
from db.settings import PostgresSettings


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
