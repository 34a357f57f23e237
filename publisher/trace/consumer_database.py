"""The database of a consumer: its own Postgres or SQLite file, with the tables of `outbox_consumer`."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

import psycopg
from pydantic import SecretStr

from db.connection import connect, snapshot
from outbox_consumer.reading import ConsumerTables
from service.errors import SettingsError, UnavailableError
from service.settings import PostgresSettings

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def is_database(text: str) -> bool:
    """Whether a text names a database: a Postgres URI, `key=value` words of libpq, or `sqlite:///PATH`."""
    return text.startswith((_SQLITE, *_POSTGRES)) or "=" in text


@contextmanager
def consumer_tables(dsn: str, application: str) -> Iterator[ConsumerTables]:
    """Open it and see one state of it, until the end. Raises SettingsError, UnavailableError."""
    try:
        if dsn.startswith(_SQLITE):
            yield from _sqlite(dsn.removeprefix(_SQLITE))
            return
        with (
            connect(PostgresSettings(dsn=SecretStr(dsn)), application, autocommit=True) as connection,
            snapshot(connection),
        ):
            # The kit's tables are where the consumer's own login finds them.
            connection.execute("SET LOCAL search_path TO DEFAULT")
            yield ConsumerTables(connection, "postgres")
    except UnavailableError as error:
        raise UnavailableError(f"the consumer's database: {error}") from error
    except (psycopg.OperationalError, sqlite3.OperationalError) as error:
        raise UnavailableError(f"the consumer's database cannot be read: {str(error).strip()}") from error
    except (psycopg.Error, sqlite3.Error) as error:
        raise SettingsError(
            f"the tables outbox_consumer_* in the consumer's database cannot be read: {str(error).strip()}. Grant SELECT on them, or name "
            "the database whose connection `outbox_consumer.consume` gets"
        ) from error


def _sqlite(path: str) -> Iterator[ConsumerTables]:
    with closing(
        sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)
    ) as connection:
        connection.execute("BEGIN")
        yield ConsumerTables(connection, "sqlite")
