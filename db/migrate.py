"""The revision of the outbox schema: upgrades and downgrades it, and checks it when a service starts.

The check needs only psycopg. alembic (the extra `migrate`) is imported when a migration runs.
"""

from collections.abc import Callable
from importlib.resources import files
from io import StringIO
from typing import Any

import psycopg
from psycopg import errors
from pydantic import SecretStr

from db.connection import connect
from db.statements import migration_script, quoted
from service.errors import OutboxError, SchemaError, UnavailableError
from service.settings import PostgresSettings

HEAD = "0028"
"""The revision that this code reads and writes."""

Tell = Callable[[str, str], None]
"""Called with a revision and its title."""

ROLES = ("outbox_writer", "outbox_publisher", "outbox_auditor", "outbox_retention", "outbox_eraser")
"""The roles of logins: for the job, the publisher, people who only read, `publisher retention run`, and `publisher erase`."""


def upgrade(server: str | PostgresSettings, revision: str = "head", tell: Tell | None = None) -> None:
    """Bring the schema of the database up to `revision`. `server`: its settings or DSN. `tell` is called for each applied revision.

    Raises UnavailableError if the server cannot be reached, or a lock or a statement takes too long; SettingsError as `connect`;
    SchemaError for other failures that another attempt cannot solve (privileges, an unsuitable database, a failing statement).
    """
    _run("upgrade", server, revision, tell)


def downgrade(server: str | PostgresSettings, revision: str, tell: Tell | None = None) -> None:
    """Take the schema back to `revision`; "base" drops it with all data. Raises as `upgrade`."""
    _run("downgrade", server, revision, tell)


def upgrade_sql(since: str = "base") -> str:
    """Return the statements that lead from a revision to HEAD. Raises SchemaError for a revision that does not exist."""
    printed = StringIO()
    _run("upgrade", None, f"{since}:head", printed=printed)
    return printed.getvalue()


def current(server: str | PostgresSettings) -> str | None:
    """Return the revision of the database, None if it has no outbox. Raises UnavailableError, SettingsError, SchemaError."""
    with connect(_settings(server), "outbox-migrate") as connection:
        return _revision(connection)


def require_current(connection: psycopg.Connection[Any]) -> None:
    """Raise SchemaError unless the schema is at HEAD. Leaves an open transaction of the caller unchanged."""
    found = _revision(connection)
    if found is None:
        raise SchemaError(
            f"database {connection.info.dbname!r} has no outbox, this code needs schema revision {HEAD}: "
            "run `outbox-migrate up`"
        )
    if found != HEAD:
        raise SchemaError(
            f"the outbox in database {connection.info.dbname!r} is at schema revision {found}, this code needs {HEAD}: "
            + ("run `outbox-migrate up`" if found < HEAD else "run the release that made it, or a newer one")
        )


def explain(error: psycopg.Error) -> OutboxError:
    """Return an error that explains a failed migration to the person who ran it."""
    happened = error.diag.message_primary or str(error).strip() or type(error).__name__
    match error:
        case errors.InsufficientPrivilege():
            roles = " ".join(f"CREATE ROLE {role} NOLOGIN;" for role in ROLES)
            return SchemaError(
                f"the migration was refused: {happened}. It needs CREATE on the database, and CREATEROLE unless an administrator "
                f"has run: {roles}"
            )
        case errors.LockNotAvailable():
            return UnavailableError(
                f"the migration gave up: {happened}. Another migration or a long transaction holds the lock "
                "(pg_stat_activity shows it): end it and run the command again"
            )
        case errors.QueryCanceled():
            return UnavailableError(
                f"the migration gave up: {happened}. Nothing of it was kept: run the command at a quieter time"
            )
        case errors.ReadOnlySqlTransaction():
            return SchemaError(
                f"the migration was refused: {happened}. [postgres] dsn (OUTBOX_POSTGRES__DSN) leads to a standby or a read-only "
                "database: name the primary"
            )
        case errors.ObjectInUse() | errors.ObjectNotInPrerequisiteState():
            return SchemaError(f"the migration was refused: {happened}. Nothing was changed")
        case errors.FeatureNotSupported():
            return SchemaError(f"this database cannot hold an outbox: {happened}")
        case psycopg.OperationalError():
            return UnavailableError(
                f"the migration did not end: {happened}. Nothing of its last revision was kept: run the command again"
            )
        case _:
            return SchemaError(f"the migration failed and was rolled back: {happened} ({error.sqlstate})")


def _settings(server: str | PostgresSettings) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(server)) if isinstance(server, str) else server


def _revision(connection: psycopg.Connection[Any]) -> str | None:
    try:
        with connection.transaction(), connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            exists = cursor.execute(migration_script("version_exists")).fetchone()
            if exists is None or not exists[0]:
                return None
            row = cursor.execute(migration_script("version")).fetchone()
    except errors.InsufficientPrivilege as error:
        raise SchemaError(
            f"user {connection.info.user!r} may not read the outbox in database {connection.info.dbname!r}: make it a member of the "
            f"role for its part, for instance GRANT {ROLES[0]} TO {quoted(connection.info.user)} (the others: {', '.join(ROLES[1:])})"
        ) from error
    return None if row is None else str(row[0])


def _run(
    command: str,
    server: str | PostgresSettings | None,
    revision: str,
    tell: Tell | None = None,
    *,
    printed: StringIO | None = None,
) -> None:
    try:
        from alembic import command as commands
        from alembic.config import Config
        from alembic.util import CommandError
    except ImportError as error:
        raise SchemaError(
            "alembic is not installed: pip install 'spark-outbox[migrate]' where migrations are run"
        ) from error
    config = Config(output_buffer=printed)
    config.set_main_option("script_location", str(files("db.migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes |= {"postgres": None if server is None else _settings(server), "tell": tell}
    run = commands.upgrade if command == "upgrade" else commands.downgrade
    try:
        run(config, revision, sql=printed is not None)
    except CommandError as error:
        if isinstance(error.__cause__, OutboxError):
            raise error.__cause__ from None
        raise SchemaError(f"{command} to {revision}: {error}") from error
