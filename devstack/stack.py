"""Both servers together, each our own or somebody else's."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from devstack.databases import ExternalPostgres, PostgresServer
from devstack.kafka import ExternalKafka, Kafka, KafkaServer
from devstack.postgres import Postgres
from devstack.processes.server import LocalServer

POSTGRES_VARIABLE = "OUTBOX_POSTGRES__DSN"
KAFKA_VARIABLE = "OUTBOX_KAFKA__BOOTSTRAP_SERVERS"


class Stack:
    """A Postgres and a Kafka. `with Stack(...)` starts the local ones, and deletes them and their data."""

    def __init__(self, postgres: PostgresServer, kafka: KafkaServer) -> None:
        """Put together two servers, local ones or external ones; nothing is started."""
        self.postgres = postgres
        self.kafka = kafka

    @classmethod
    def local(cls, directory: Path, *, fast: bool = False, heap: str = "512m") -> Self:
        """Two local servers with their data under `directory`, not started."""
        return cls(
            Postgres(directory / "postgres", fast=fast), Kafka(directory / "kafka", fast=fast, heap=heap)
        )

    @classmethod
    def from_environment_or_start(
        cls,
        directory: Path,
        *,
        fast: bool = False,
        heap: str = "512m",
        postgres_settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """The servers that the environment names, and a started local one for each that it does not name.

        OUTBOX_POSTGRES__DSN and OUTBOX_KAFKA__BOOTSTRAP_SERVERS count separately. `postgres_settings` are further settings, by name,
        of a Postgres that is started here.
        End the stack with destroy() or by `with`.
        Raises DevstackError when a server does not start; nothing is left running then.
        """
        stack = cls(
            external_postgres(environment)
            or Postgres(directory / "postgres", fast=fast, settings=dict(postgres_settings or {})),
            external_kafka(environment) or Kafka(directory / "kafka", fast=fast, heap=heap),
        )
        stack.start()
        return stack

    @property
    def local_servers(self) -> list[LocalServer]:
        """Those of the two that are ours to start and stop."""
        return [each for each in (self.postgres, self.kafka) if isinstance(each, LocalServer)]

    def start(self) -> None:
        """Start the local servers; where one fails, those started before it are killed."""
        with ExitStack() as undo:
            for server in self.local_servers:
                server.start()
                undo.callback(server.kill)
            undo.pop_all()

    def stop(self) -> None:
        """Shut the local servers down cleanly; their data stays."""
        for server in reversed(self.local_servers):
            server.stop()

    def destroy(self) -> None:
        """Kill the local servers and delete their data."""
        for server in reversed(self.local_servers):
            server.destroy()

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, and return its DSN."""
        return self.postgres.create_database(name, template=template)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, ending the connections to it."""
        self.postgres.drop_database(name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()


def external_postgres(environment: Mapping[str, str] | None = None) -> ExternalPostgres | None:
    """The Postgres that OUTBOX_POSTGRES__DSN names, None where it is not set."""
    dsn = (os.environ if environment is None else environment).get(POSTGRES_VARIABLE)
    return ExternalPostgres(dsn) if dsn else None


def external_kafka(environment: Mapping[str, str] | None = None) -> ExternalKafka | None:
    """The Kafka that OUTBOX_KAFKA__BOOTSTRAP_SERVERS names, None where it is not set."""
    servers = (os.environ if environment is None else environment).get(KAFKA_VARIABLE)
    return ExternalKafka(servers) if servers else None
