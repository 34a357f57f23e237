"""A login for which every parameter that a user may set has another value than Postgres' own default."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

TEXTS = {
    "DateStyle": "SQL, DMY",
    "TimeZone": "Pacific/Chatham",
    "application_name": "odd",
    "client_encoding": "LATIN1",
    "createrole_self_grant": "set, inherit",
    "default_table_access_method": "odd_heap",
    "default_tablespace": "pg_default",
    "default_text_search_config": "pg_catalog.german",
    "lc_monetary": "C.UTF-8",
    "lc_numeric": "C.UTF-8",
    "lc_time": "C.UTF-8",
    "plpgsql.extra_errors": "all",
    "plpgsql.extra_warnings": "all",
    "restrict_nonsystem_relation_kind": "view, foreign-table",
    "search_path": "outbox, pg_temp",
    "temp_tablespaces": "pg_default",
    "timezone_abbreviations": "Australia",
}
FORBIDDEN = {
    # It names libraries of the server's machine, and nobody can log in where one is not there.
    "local_preload_libraries",
    # One transaction's: what a role says of it ends with the login.
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
}
"""What no login can have."""


@contextmanager
def odd_login(dsn: str, *roles: str) -> Iterator[str]:
    """Make a login with these roles on the server of `dsn`, for the block, and yield its DSN for the same database.

    Raises KeyError for a parameter whose odd value nobody has chosen: a newer Postgres has it.
    """
    name = f"odd_{uuid4().hex}"
    login, members = sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, roles))
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(login))
        if roles:
            admin.execute(sql.SQL("GRANT {} TO {}").format(members, login))
        admin.execute("CREATE ACCESS METHOD odd_heap TYPE TABLE HANDLER heap_tableam_handler")
        for parameter, value in odd_values(admin).items():
            # search_path is a list, whose items are quoted one by one.
            items = value.split(", ") if parameter == "search_path" else [value]
            texts = sql.SQL(", ").join(map(sql.Literal, items))
            setting = sql.SQL(".").join(map(sql.Identifier, parameter.split(".")))
            admin.execute(sql.SQL("ALTER ROLE {} SET {} = {}").format(login, setting, texts))
    try:
        yield make_conninfo(dsn, user=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP ROLE {}").format(login))


def odd_values(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """{parameter: odd value} of everything that a user may set on that server."""
    connection.execute("DO 'BEGIN END'")  # plpgsql's are there once it is loaded
    found: dict[str, str] = {}
    for name, kind, usual, least, choices in connection.execute(
        "SELECT name, vartype, boot_val, min_val, enumvals FROM pg_settings WHERE context = 'user'"
    ).fetchall():
        if name in FORBIDDEN:
            continue
        match kind:
            case "bool":
                found[name] = "off" if usual == "on" else "on"
            case "enum":
                others = [value for value in choices if value != usual]
                if others:
                    found[name] = others[-1]
            case "string":
                found[name] = TEXTS[name]
            case _ if name.endswith("_timeout"):
                found[name] = "3s"
            case _:
                found[name] = least if float(least) != float(usual) else f"{float(least) + 1:g}"
    return found
