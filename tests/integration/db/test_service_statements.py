"""Every statement of the two services fits the schema, and its role may run it."""

import re
from importlib.resources import files

import pytest
from psycopg import sql

from db.migrate import ROLES
from tests.support.outbox.valid_rows import OutboxRows

WRITER, PUBLISHER, AUDITOR = ROLES
OWNER = "owner"
STATEMENTS = [
    (role, service, path.name)
    for role, service in (
        (WRITER, "spark_job"),
        (PUBLISHER, "publisher"),
        (OWNER, "publisher.retention"),
        (AUDITOR, "publisher.audit"),
    )
    for path in sorted(files(service).joinpath("sql").iterdir(), key=lambda path: path.name)
    # What begins and ends a transaction names nothing of the schema.
    if path.name.endswith(".sql") and path.name not in ("begin_snapshot.sql", "end_snapshot.sql")
]
# What EXPLAIN cannot explain runs as it is.
_UTILITY = re.compile(r"(?:\s*--[^\n]*\n)*\s*(CREATE|LISTEN|SET)\b")
_COPY = re.compile(r"COPY (outbox\.\w+) \(([^)]*)\) FROM STDIN")


@pytest.mark.parametrize(("role", "service", "name"), STATEMENTS, ids=lambda value: str(value))
def test_its_role_may_run_it(outbox: OutboxRows, role: str, service: str, name: str) -> None:
    """EXPLAIN checks names, types and privileges as a run does, and writes nothing; NULL stands for each parameter."""
    text = files(service).joinpath("sql", name).read_text("utf-8")
    statement = re.sub(r"%\(\w+\)s", "NULL", text).replace("%%", "%")
    with outbox.connection.transaction(force_rollback=True):
        if role != OWNER:
            outbox.connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        if "pg_temp." in statement:
            outbox.connection.execute(files(service).joinpath("sql", "create_letter_stage.sql").read_bytes())
        if copied := _COPY.match(statement):
            statement = f"INSERT INTO {copied[1]} ({copied[2]}) SELECT {copied[2]} FROM {copied[1]}"  # noqa: S608
        if not _UTILITY.match(statement):
            statement = f"EXPLAIN {statement}"
        if not statement.startswith("EXPLAIN COPY pg_temp."):  # a table of its own
            outbox.connection.execute(statement.encode())
