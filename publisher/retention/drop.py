"""Takes partitions out without anybody waiting: marked, detached concurrently, dropped. Each step may be the last one of its process."""

from typing import Any

import psycopg
import structlog
from psycopg import sql

from db.statements import queries
from publisher.retention.recording import record
from publisher.retention.survey import MARK, leftovers
from service.errors import UnavailableError
from service.fault_points import reach

_PARTITIONS = queries("publisher.retention", "partitions")

_log = structlog.get_logger()
_PARENT = sql.Identifier("outbox", "session_output")


def finish_leftovers(connection: psycopg.Connection[Any]) -> list[str]:
    """End what an interrupted run began; return the tables dropped. What others detached is left alone, and said.

    Raises UnavailableError when somebody is in the way.
    """
    dropped = []
    for leftover in leftovers(connection):
        if not leftover.ours:
            _log.warning(
                "detached_by_somebody_else",
                table=f"outbox.{leftover.name}",
                pending=leftover.pending,
                mend=f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{leftover.name} FINALIZE"
                if leftover.pending
                else f"move it to another schema if it is kept, else DROP TABLE outbox.{leftover.name}",
            )
            continue
        if leftover.pending:
            _finalize(connection, leftover.name)
        _drop(connection, leftover.name)
        dropped.append(leftover.name)
    return dropped


def drop_partition(connection: psycopg.Connection[Any], name: str) -> None:
    """Take an attached partition out. `connection` must be in autocommit mode, and hold the retention lock.

    Raises UnavailableError when transactions that use it did not end within the lock timeout; the next run continues from there.
    """
    # The mark first: a table that is found detached with it is one whose rows were decided on under the retention lock.
    _alter(connection, name, sql.SQL("COMMENT ON TABLE {partition} IS {mark}"))
    reach("retention.before_detach")
    # Not in a transaction: it commits in the middle, so that new statements no longer see the partition, and waits for the older ones.
    _alter(connection, name, sql.SQL("ALTER TABLE {parent} DETACH PARTITION {partition} CONCURRENTLY"))
    reach("retention.after_detach")
    _drop(connection, name)
    reach("retention.after_drop")


def unmark(connection: psycopg.Connection[Any], name: str) -> None:
    """Take the mark off a partition that stays after all."""
    _alter(connection, name, sql.SQL("COMMENT ON TABLE {partition} IS NULL"))


def _finalize(connection: psycopg.Connection[Any], name: str) -> None:
    _alter(connection, name, sql.SQL("ALTER TABLE {parent} DETACH PARTITION {partition} FINALIZE"))


def _drop(connection: psycopg.Connection[Any], name: str) -> None:
    with connection.transaction():
        _alter(connection, name, sql.SQL("DROP TABLE {partition}"))
        record(connection, dropped=name)


def _alter(connection: psycopg.Connection[Any], name: str, command: sql.SQL) -> None:
    try:
        connection.execute(
            command.format(parent=_PARENT, partition=sql.Identifier("outbox", name), mark=sql.Literal(MARK))
        )
    except psycopg.errors.LockNotAvailable as error:
        raise UnavailableError(
            f"outbox.{name} could not be taken out: transactions that use the outputs did not end in time "
            f"([retention] lock_timeout_s). {_in_the_way(connection, name)} Nobody waits for retention meanwhile; the next run goes "
            "on from here"
        ) from error


def _in_the_way(connection: psycopg.Connection[Any], name: str) -> str:
    found = connection.execute(_PARTITIONS["in_the_way"], {"partition": name}).fetchall()
    if not found:
        return "They have ended since."
    shown = "; ".join(
        f"pid {pid} ({application} of {user}), for {age_s:.0f} s" for pid, application, user, age_s in found
    )
    return f"In the way: {shown}. Wait for them, or end one with: SELECT pg_terminate_backend({found[0][0]})."
