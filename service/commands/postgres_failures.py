"""Explains a failed statement to the person who runs a command, unless the command itself does."""

import psycopg

from service.errors import READ_ONLY, OutboxError, RefusedError, UnavailableError


def explained(error: Exception) -> OutboxError | None:
    """Return the explanation; None for an error that explains itself, or that only a bug can cause."""
    what = str(error).strip() or type(error).__name__
    match error:
        case psycopg.errors.ReadOnlySqlTransaction():
            return UnavailableError(READ_ONLY.format(what=what))
        case psycopg.errors.InsufficientPrivilege():
            return RefusedError(
                f"Postgres refused it: {what}. The login of the dsn needs the role for its part (db/README.md, Roles)"
            )
        case psycopg.OperationalError():
            return UnavailableError(f"Postgres failed: {what}. Run it again")
        case _:
            return None
