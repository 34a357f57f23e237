"""How alembic reaches the outbox: DSN from the caller, else from the services' settings; one transaction for each migration.

The version table is outbox.alembic_version, so that the schema `outbox` holds everything and nothing else does. Hence the schema is
made here, before alembic writes the table, and dropped here, after the last migration was taken back.

The person who runs printed migrations has another search_path, and psql continues after an error. So each printed transaction makes the
checks that `migrate` makes once at the beginning.
"""

import logging.config
from collections.abc import Collection
from typing import Any

import psycopg
from alembic import context
from alembic.ddl.postgresql import PostgresqlImpl
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.util import CommandError
from psycopg import sql
from psycopg.rows import TupleRow
from sqlalchemy import Connection, create_engine, exc
from sqlalchemy.pool import NullPool

from db import operations
from db.connection import connect
from db.migrate import Tell, explain
from db.statements import migration_script
from service.errors import OutboxError, SchemaError
from service.settings import PostgresSettings, load_settings

LOCK_TIMEOUT_MS = 5_000
"""A migration that waits longer than this gives up, because everything behind it in the queue for the lock waits too."""


def open_connection() -> psycopg.Connection[TupleRow]:
    """Connect with any conninfo that libpq knows, wait for other migrations, and bound every statement."""
    settings: PostgresSettings = context.config.attributes.get("postgres") or load_settings().postgres
    connection = connect(settings.model_copy(update={"lock_timeout_ms": LOCK_TIMEOUT_MS}), "outbox-migrate")
    try:
        run(connection, "open_session")
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: psycopg.Connection[TupleRow], name: str) -> bool:
    """Run `sql/<name>.sql`; return whether it answered with true."""
    cursor = connection.execute(migration_script(name))
    row = cursor.fetchone() if cursor.description else None
    return row is not None and row[0] is True


def migrate(connection: Connection, options: dict[str, Any]) -> None:
    """Make the schema where it is missing, run the migrations, drop the schema where nothing is left in it."""
    raw = connection.connection.driver_connection
    if raw is None:
        raise RuntimeError("SQLAlchemy gave a connection without a driver connection")
    tell: Tell | None = context.config.attributes.get("tell")

    def applied(step: MigrationInfo, **_: Any) -> None:
        """Record the operation and report it, in the migration's transaction."""
        if run(raw, "log_exists"):
            command = "outbox-migrate up" if step.is_upgrade else "outbox-migrate down"
            operations.record(raw, command, {}, {"revision": step.up_revision_id})
        if tell is not None:
            script: Any = step.up_revision  # alembic's own annotation lacks what its scripts have
            tell(script.revision, script.doc)

    options |= {"on_version_apply": applied}
    context.configure(connection=connection, transaction_per_migration=True, **options)
    # `alembic current` and its like only read.
    changes = not context.get_context().opts.get("dont_mutate", False)
    if changes and not run(raw, "schema_exists"):
        run(raw, "create_schema")
    if changes and not run(raw, "schema_is_ours"):
        raise SchemaError(
            f"the schema outbox in database {raw.info.dbname!r}, or something in it, belongs to another role than {raw.info.user!r}, "
            "which could put its own code there: migrate as the owner, or, if nobody knows that role, drop the schema. Nothing was changed"
        )
    raw.commit()
    context.run_migrations()
    connection.commit()
    if changes and run(raw, "schema_is_unused"):
        run(raw, "drop_schema")
    raw.commit()


class PrintedMigrations(PostgresqlImpl):
    """The statements of `outbox-migrate sql`. alembic finds this class by its dialect, and calls `emit_begin` only where it prints."""

    __dialect__ = "postgresql"
    heads: tuple[str, ...] = ()
    """The revision before the transaction that begins; empty if there is none."""

    def emit_begin(self) -> None:
        """Begin a transaction that fails in a schema of somebody else, and after a transaction that failed."""
        super().emit_begin()
        check = sql.SQL(migration_script("check_printed")).format(
            schema_is_ours=sql.SQL(migration_script("schema_is_ours")),
            revision=sql.Literal(next(iter(self.heads), None)),
        )
        self.static_output(check.as_string())


def print_migrations(options: dict[str, Any]) -> None:
    """Print the migrations for a person to run, in one transaction each."""

    def printed(ctx: MigrationContext, heads: Collection[str], **_: Any) -> None:
        assert isinstance(ctx.impl, PrintedMigrations)
        ctx.impl.heads = tuple(heads)

    options |= {"on_version_apply": printed}
    context.configure(dialect_name="postgresql", transaction_per_migration=True, **options)
    migrations = context.get_context()
    heads = set(migrations.get_current_heads())
    printed(migrations, heads)
    migrations.impl.static_output("SET search_path = pg_catalog;")
    if not heads:
        migrations.impl.static_output(migration_script("create_schema").strip() + ";")
    context.run_migrations()


def main() -> None:
    """Run what the command line or db.migrate asked for; a failure becomes one line that names its remedy."""
    if context.config.config_file_name:
        logging.config.fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    options: dict[str, Any] = {"version_table_schema": "outbox"}
    if context.is_offline_mode():
        print_migrations(options)
        return
    engine = create_engine("postgresql+psycopg://", creator=open_connection, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            migrate(connection, options)
    except OutboxError as error:
        raise CommandError(str(error)) from error
    except exc.DBAPIError as error:
        if not isinstance(error.orig, psycopg.Error):
            raise
        raise CommandError(str(explain(error.orig))) from explain(error.orig)
    except psycopg.Error as error:
        raise CommandError(str(explain(error))) from explain(error)


main()
