"""Reads the state of outputs at consumers, from a Postgres or SQLite database with the tables of `outbox_consumer`."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr, ValidationError

from contract.positions import OutboxId, parse_position
from db.connection import connect, snapshot
from outbox_consumer.reading import ConsumedAs, ConsumerTables
from service.errors import SettingsError, UnavailableError
from service.printable import printable
from service.settings import PostgresSettings
from service.settings.dsn import dsn_from, secrets_in

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_FILE = "file:///"
_NAMED_BY = "--consumer (--consumed of an audit, [console] consumer_dsn_file)"


def is_database(text: str) -> bool:
    """Whether a text names a database: a Postgres URI, libpq's `key=value` words, `sqlite:///PATH`, or `file:///PATH` of a file with a
    DSN."""
    return text.startswith((_SQLITE, _FILE, *_POSTGRES)) or "=" in text


@contextmanager
def consumer_tables(
    named: str, application: str, *, connect_timeout_s: int = 10, statement_timeout_ms: int = 0
) -> Iterator[ConsumerTables]:
    """Open the database that `named` names; all queries in the block see the same state of it. `statement_timeout_ms` 0: no limit.

    Raises SettingsError, UnavailableError.
    """
    try:
        if named.startswith(_SQLITE):
            yield from _sqlite(named.removeprefix(_SQLITE))
            return
        postgres = _postgres(named).model_copy(update={"connect_timeout_s": connect_timeout_s})
        with (
            _connected(postgres, application) as connection,
            snapshot(connection),
        ):
            # The kit's tables are in the schema in which the login finds them by default.
            connection.execute("SET LOCAL search_path TO DEFAULT")
            connection.execute(
                "SELECT pg_catalog.set_config('statement_timeout', %s, true)", [f"{statement_timeout_ms}ms"]
            )
            yield ConsumerTables(connection, "postgres")
    except (psycopg.OperationalError, sqlite3.OperationalError) as error:
        raise UnavailableError(f"the consumer's database cannot be read: {str(error).strip()}") from error
    except (psycopg.Error, sqlite3.Error) as error:
        raise SettingsError(
            f"the tables outbox_consumer_* in the consumer's database cannot be read: {str(error).strip()}. Grant SELECT on them, or name "
            "the database whose connection `outbox_consumer.consume` gets"
        ) from error


def _connected(postgres: PostgresSettings, application: str) -> psycopg.Connection[Any]:
    """Connect. Raises UnavailableError, SettingsError."""
    try:
        return connect(postgres, application, autocommit=True)
    except UnavailableError as error:
        # The error's own text names the settings of the outbox's server, which are not used here.
        said = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
        raise UnavailableError(
            f"the consumer's database at {postgres.address()} cannot be used: {str(said).strip()}. Check {_NAMED_BY}"
        ) from error


def _postgres(named: str) -> PostgresSettings:
    """Return the connection settings, without `[postgres] login`, whose passwords are for the outbox's server alone. Raises
    SettingsError."""
    from_file = named.startswith(_FILE)
    try:
        dsn = dsn_from(Path("/", named.removeprefix(_FILE)), "file") if from_file else SecretStr(named)
        found = PostgresSettings(dsn=dsn).named_by(_NAMED_BY)
    except ValueError as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        # Without the cause, because its message has the DSN.
        raise SettingsError(f"the consumer's database: {said.removeprefix('Value error, ')}") from None
    given = conninfo_to_dict(found.dsn.get_secret_value())
    if not given:
        raise SettingsError(f"the consumer's database: {named!r} holds no DSN")
    if not from_file and (secrets := secrets_in(given)):
        raise SettingsError(
            f"the consumer's database: other users of this machine see the {secrets[0]} of a DSN on a command line. Write the DSN into a "
            "file that only you may read, and name that: file:///PATH; or leave the password to PGPASSFILE"
        )
    return found


def _sqlite(path: str) -> Iterator[ConsumerTables]:
    with closing(
        sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)
    ) as connection:
        connection.execute("BEGIN")
        yield ConsumerTables(connection, "sqlite")


class Consumption(NamedTuple):
    """A consumer's state of an output. `next_offset`: the consumer's position in the output's partition, None if it no longer has one."""

    row: ConsumedAs
    next_offset: int | None

    def of_revision(self, revision: int) -> str:
        """Describe the consumer's state of this revision of the output."""
        row = self.row
        if row.set_aside is not None:
            what = f"set aside at {row.at}: {row.set_aside}"
        elif row.revision < revision:
            what = f"has revision {row.revision} only, consumed at {row.at}"
        elif row.revision > revision:
            what = f"superseded by revision {row.revision}, consumed at {row.at}"
        else:
            what = f"consumed at {row.at}{' by retry' if row.retried else ''}"
        position = "" if self.next_offset is None else f", whose position is {self.next_offset}"
        # The row may hold any text of the consumer's, and the result must be one line of a report.
        return printable(
            f"consumer {row.consumer}: {what}, from {row.topic} partition {row.partition} offset {row.offset}{position}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        return self.row._asdict() | {"next_offset": self.next_offset}


Consumptions = Mapping[str, list[Consumption]]
"""{outbox-id: each consumer's state of the output}."""


def consumptions(
    named: str, outbox_ids: Iterable[str], application: str = "publisher trace", **limits: int
) -> Consumptions:
    """Return the state of these outputs at all consumers of a database; `limits`: see `consumer_tables`.

    Raises SettingsError, UnavailableError.
    """
    with consumer_tables(named, application, **limits) as tables:
        positions = tables.positions()
        if positions is None:
            raise SettingsError(
                "the consumer's database is without the tables of `outbox_consumer`: name the one whose connection `consume` gets"
            )
        ends = {(each.consumer, each.topic, each.partition): each.next_offset for each in positions}
        asked = {each for each in map(parse_position, outbox_ids) if isinstance(each, OutboxId)}
        found = {}
        for outbox_id, rows in tables.of_outputs(sorted(asked)).items():
            for row in rows:
                if not isinstance(row.revision, int):  # a column of SQLite holds anything
                    raise SettingsError(
                        f"the consumer's database has a row that cannot be read: {row._asdict()}"
                    )
            found[outbox_id] = [
                Consumption(row, ends.get((row.consumer, row.topic, row.partition))) for row in rows
            ]
        return found


def described(rows: Iterable[Consumption], revision: int) -> list[str]:
    """Describe the consumers' states of this revision of an output, one line for each consumer."""
    return [row.of_revision(revision) for row in rows] or ["no consumer has it (yet)"]
