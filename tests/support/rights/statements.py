"""Every named statement of the repository, the role that it is written for, and a try of it without doing anything."""

import re
from typing import Any, LiteralString

import psycopg

from spark_job.outputs import pgcopy
from tests.support.query_files import QueryFile, kind, numbered, query_files
from tests.support.rights.declared import AUDITOR, ERASER, PUBLISHER, RETENTION, WRITER

_ROLE_OF = {
    "spark_job": WRITER,
    "publisher": PUBLISHER,
    "publisher.audit": AUDITOR,
    "publisher.retention": RETENTION,
    "publisher.erasure": ERASER,
    "db": AUDITOR,
}
"""By package; queries of all services are run by the one that may least, and those of other packages by the owner."""
_ROLE_OF_STATEMENT: dict[tuple[QueryFile, str], str | None] = {
    (QueryFile("db", "operations"), "record"): PUBLISHER,
    (QueryFile("publisher.retention", "letters"), "remove_open"): None,
}
"""Where a statement's role is not that of its package: the auditor records no operations, and no role removes open letters unasked."""

STATEMENTS = [(file, name) for file in query_files() for name in file.load()]
_STAGE = QueryFile("spark_job", "letters").load()["create_stage"]
"""Makes the temporary table of the queries that read pg_temp."""

_CHANGES = re.compile(r"\b((INSERT INTO|UPDATE|DELETE FROM) outbox\.|FOR UPDATE\b|FOR SHARE\b)")
_COMMENT = re.compile(r"--[^\n]*")
_TEXT = re.compile(r"'[^']*'")


def role_of(file: QueryFile, name: str) -> str | None:
    """Return the role that a statement is written for; None: the owner."""
    return _ROLE_OF_STATEMENT.get((file, name), _ROLE_OF.get(file.package))


def named(query: str) -> set[str]:
    """Return the relations and functions of the outbox that a statement uses; what a text in it names needs no right."""
    return set(re.findall(r"\boutbox\.(\w+)", _TEXT.sub("", _COMMENT.sub("", query))))


def writes(query: str) -> bool:
    """Whether a statement itself writes or locks rows of the outbox, whatever the functions do that it calls."""
    return kind(query) == "COPY" or _CHANGES.search(_COMMENT.sub("", query)) is not None


def attempt(connection: psycopg.Connection[Any], query: LiteralString) -> None:
    """Have Postgres check everything about a statement, rights included, in the caller's transaction. Raises psycopg.Error."""
    if "pg_temp." in query:
        connection.execute(_STAGE)
    match kind(query):
        case "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "WITH":
            _plan(connection, query)
        case "LISTEN" | "SET" | "CREATE":
            connection.execute(query)
        case "COPY":
            _copy_nothing(connection, query)
        case word:
            raise ValueError(f"say how {word} is to be checked")


def _plan(connection: psycopg.Connection[Any], query: LiteralString) -> None:
    """Prepare a query and have it planned without the values. Postgres finds out each parameter's type, or refuses."""
    text, parameters = numbered(query)
    # What a failed test before this one has prepared: no rollback takes it away.
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE asked AS {text}".encode())
    nulls = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    connection.execute(f"EXPLAIN EXECUTE asked{nulls}".encode())


def _copy_nothing(connection: psycopg.Connection[Any], query: LiteralString) -> None:
    """Run a COPY with no rows."""
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        if "BINARY" in query:
            copy.write(pgcopy.HEADER + pgcopy.TRAILER)
