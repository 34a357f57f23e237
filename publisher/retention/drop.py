"""Drops a partition, in one transaction with its row in the operator log. Nobody waits longer for that than one attempt takes."""

import time
from typing import Any

import psycopg

from db.statements import queries
from publisher.retention.recording import record
from service.errors import UnavailableError
from service.lifecycle.fault_points import reach

_PARTITIONS = queries("publisher.retention", "partitions")

_PAUSE_S = 1.0
"""Between two attempts, so that the statements which waited behind one can run."""


def drop_partition(connection: psycopg.Connection[Any], name: str, patience_s: float) -> None:
    """Drop an attached partition. `connection` must be in autocommit mode, and hold the retention lock.

    The function waits a fifth of a second for transactions that use the outputs, and is called again for up to `patience_s`. Raises
    UnavailableError where they did not end by then, or where somebody has come to need the partition since it was surveyed.
    """
    deadline = time.monotonic() + patience_s
    while not _try(connection, name, last=time.monotonic() >= deadline):
        time.sleep(_PAUSE_S)


def _try(connection: psycopg.Connection[Any], name: str, *, last: bool) -> bool:
    reach("retention.before_drop")
    try:
        with connection.transaction():
            connection.execute(_PARTITIONS["drop"], {"partition": name})
            record(connection, dropped=name)
    except psycopg.errors.LockNotAvailable as error:
        if not last:
            return False
        raise UnavailableError(
            f"outbox.{name} could not be taken out: transactions that use the outputs did not end in time "
            f"([retention] lock_timeout_s). {_in_the_way(connection, name)} The next run tries again"
        ) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise UnavailableError(f"{error.diag.message_primary}, since a moment ago. Run it again") from error
    reach("retention.after_drop")
    return True


def _in_the_way(connection: psycopg.Connection[Any], name: str) -> str:
    found = connection.execute(_PARTITIONS["in_the_way"], {"partition": name}).fetchall()
    if not found:
        return "They have ended since."
    shown = "; ".join(
        f"pid {pid} ({application} of {user}{'' if age_s is None else f', for {age_s:.0f} s'})"
        for pid, application, user, age_s in found
    )
    return f"In the way: {shown}. Wait for them, or end one with: SELECT pg_terminate_backend({found[0][0]})."
