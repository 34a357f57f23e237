"""Runs a revision's file of SQL statements."""

from alembic import op

from db.statements import migration_script


def run_script(name: str) -> None:
    """Run `sql/<name>.sql` in the migration's transaction, or print it under `outbox-migrate sql`.

    The text goes to psycopg untouched: SQLAlchemy would take `%` and `:name` for parameters.
    """
    sql = migration_script(name)
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(sql)
        return
    connection = op.get_bind().connection.driver_connection
    if connection is None:
        raise RuntimeError("alembic runs a migration without a database connection")
    connection.execute(sql)
