"""A Postgres as a container, with the settings of devstack's fast one."""

import psycopg

from devstack.databases import PostgresServer
from devstack.postgres import FAST, LOCALE, MAX_CONNECTIONS, SUPERUSER
from devstack.processes.port import LOOPBACK
from tests.support.containers.server import ContainerServer
from tests.support.engine.stand_ins import POSTGRES

_PORT = 5432
_SHARED_MEMORY = "256m"


class ContainerPostgres(ContainerServer, PostgresServer):
    """The image postgres:18. Users connect without a password, as with devstack: the port is on loopback only."""

    image = POSTGRES

    def dsn(self, database: str | None = None) -> str:
        """DSN of a database of this server (default: `postgres`)."""
        return f"postgresql://{SUPERUSER}@{LOOPBACK}:{self.port}/{database or 'postgres'}"

    def variables(self) -> dict[str, str]:
        """No password for anybody, and the database as devstack makes it."""
        return {
            "POSTGRES_HOST_AUTH_METHOD": "trust",
            "POSTGRES_INITDB_ARGS": " ".join(("--no-sync", *LOCALE)),
        }

    def arguments(self) -> list[str]:
        """devstack's settings."""
        settings = FAST | {"max_connections": str(MAX_CONNECTIONS)}
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def options(self) -> dict[str, str]:
        """The default of 64 MB is too little for parallel queries."""
        return {"shm_size": _SHARED_MEMORY}

    def container_port(self) -> int:
        """5432"""
        return _PORT

    def answers(self) -> bool:
        """Whether it takes a connection over TCP; while the image sets itself up, it listens on its socket only."""
        try:
            with psycopg.connect(self.dsn(), connect_timeout=2, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True
