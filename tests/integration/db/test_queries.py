"""Postgres accepts every query of the repository on a migrated database: names, types, plans, and the rights of the role that runs it.

No list of queries to keep: what is in a `.sql` file is run here. Only the kinds of statement that cannot be prepared are named.
"""

from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from db.migrate import ROLES
from spark_job.assembly import pgcopy
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.query_files import QueryFile, kind, numbered, query_files

WRITER, PUBLISHER, AUDITOR = ROLES
ROLE_OF = {"spark_job": WRITER, "publisher": PUBLISHER, "publisher.audit": AUDITOR, "db": AUDITOR}
"""Role by package; queries of all services are run by the one that may least, and those of other packages by the owner."""
ROLE_OF_FILE = {QueryFile("db", "operations"): PUBLISHER}
"""Where a file's role is not that of its package: the auditor records no operations."""

PREPARED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
RUN_AS_THEY_ARE = ("LISTEN", "SET", "CREATE")
COPIED = "COPY"

QUERIES = [(file, name) for file in query_files() for name in file.load()]
STAGE = QueryFile("spark_job", "letters").load()["create_stage"]
"""Makes the temporary table of the queries that read pg_temp."""


def plan(connection: psycopg.Connection[tuple[object, ...]], query: LiteralString) -> None:
    """Prepare a query and have it planned without the values. Postgres finds out each parameter's type, or refuses."""
    text, parameters = numbered(query)
    # What a failed test before this one has prepared: no rollback takes it away.
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE asked AS {text}".encode())
    nulls = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    connection.execute(f"EXPLAIN EXECUTE asked{nulls}".encode())


def copy_nothing(connection: psycopg.Connection[tuple[object, ...]], query: LiteralString) -> None:
    """Run a COPY with no rows."""
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        if "BINARY" in query:
            copy.write(pgcopy.HEADER + pgcopy.TRAILER)


@pytest.mark.parametrize(
    ("file", "name"), [pytest.param(*each, id=f"{'/'.join(each[0])}/{each[1]}") for each in QUERIES]
)
def test_it_is_accepted_with_the_rights_of_its_role(
    module_outbox: OutboxRows, file: QueryFile, name: str
) -> None:
    query = file.load()[name]
    connection = module_outbox.connection
    with connection.transaction(force_rollback=True):
        if role := ROLE_OF_FILE.get(file, ROLE_OF.get(file.package)):
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        if "pg_temp." in query:
            connection.execute(STAGE)
        match kind(query):
            case word if word in PREPARED:
                plan(connection, query)
            case word if word in RUN_AS_THEY_ARE:
                connection.execute(query)
            case word if word == COPIED:
                copy_nothing(connection, query)
            case word:
                pytest.fail(f"say how {word} is to be checked")
