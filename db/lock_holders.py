"""Takes an advisory lock of the outbox, or finds its holder.

Every login that may connect can take these locks, even a login without any other right.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import psycopg

from db.migrate import ROLES
from db.statements import queries
from service.errors import UnavailableError

_LOCKS = queries("db", "locks")

_RELEASED_WITHIN_S = 3.0
"""A session's locks last until its backend notices that the connection was closed."""
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A session that holds a lock. `since`: when its backend started, None if this login may not see it."""

    pid: int
    login: str
    application: str
    since: datetime | None
    shared: bool
    is_ours: bool
    """Whether the session's login has one of the outbox's roles."""

    def __str__(self) -> str:
        since = "" if self.since is None else f" since {self.since:%Y-%m-%d %H:%M:%S}"
        return f"pid {self.pid} ({self.application}){since}"


def take_lock(connection: psycopg.Connection[Any], attempt: LiteralString, lock: str) -> bool:
    """Take a lock by the query `attempt` until the connection ends; return False if somebody else keeps it for three seconds.

    Raises UnavailableError if a login without any role of the outbox holds it, psycopg.Error.
    """
    deadline = time.monotonic() + _RELEASED_WITHIN_S
    while connection.execute(attempt).fetchone() != (True,):
        if time.monotonic() > deadline:
            refuse_strangers(connection, lock)
            return False
        time.sleep(_PAUSE_S)
    return True


def lock_holder(connection: psycopg.Connection[Any], lock: str) -> LockHolder | None:
    """Return a holder of the lock, an unknown login before one with a role of the outbox; None if the lock is free."""
    row = connection.execute(_LOCKS["holder"], {"lock": lock, "roles": list(ROLES)}).fetchone()
    return None if row is None else LockHolder(*row)


def refuse_strangers(connection: psycopg.Connection[Any], lock: str) -> None:
    """Raise UnavailableError if a login without any role of the outbox holds the lock."""
    holder = lock_holder(connection, lock)
    if holder is not None and not holder.is_ours:
        raise UnavailableError(
            f"{holder}, whose login {holder.login!r} has none of the outbox's roles, holds the advisory lock {lock!r}. End it by "
            f"pg_terminate_backend({holder.pid}), take CONNECT away from the login (db/README.md, Roles), and run the command again"
        )
