"""Making and dropping databases on a server, ours or somebody else's."""

from abc import ABC, abstractmethod
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import conninfo, sql


class PostgresServer(ABC):
    """A Postgres server that can be reached."""

    @abstractmethod
    def dsn(self, database: str | None = None) -> str:
        """The DSN of one of its databases; without a name, of the one to connect to by default."""

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, and return its DSN.

        Raises psycopg.errors.DuplicateDatabase if it exists, ObjectInUse if the template has connections.
        """
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, ending the connections to it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def has_database(self, name: str) -> bool:
        """Whether the server has a database of this name."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            return found.fetchone() is not None

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)


class ExternalPostgres(PostgresServer):
    """A server that somebody else runs, known by the DSN of one of its databases."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def dsn(self, database: str | None = None) -> str:
        """The given DSN, with another database name if one is asked for."""
        if database is None:
            return self._dsn
        parts = urlsplit(self._dsn)
        if parts.scheme in ("postgresql", "postgres"):
            return urlunsplit(parts._replace(path="/" + quote(database, safe="")))
        return conninfo.make_conninfo(self._dsn, dbname=database)
