"""Deletes what the ledger no longer needs, in steps that are each a short transaction: a kill between two loses nothing."""

from dataclasses import dataclass
from typing import Any

import psycopg

from db.fault_points import reach
from db.statements import statement
from publisher.retention.survey import SQL

ROWS_AT_ONCE = 5_000
"""Rows that one transaction deletes at the most."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Rows deleted of each kind."""

    batches: int = 0
    deliveries: int = 0
    processes: int = 0
    replays: int = 0


def prune(connection: psycopg.Connection[Any], keep_s: int, rows_at_once: int = ROWS_AT_ONCE) -> Pruned:
    """Delete what is older than `keep_s` seconds and named by nothing. `connection` in autocommit mode. Raises psycopg.Error.

    What stays, whatever its age, is in the statements: prune_batches.sql and prune_deliveries.sql.
    """
    row = connection.execute(statement(SQL, "ledger_floor")).fetchone()
    floor: int | None = None if row is None else row[0]
    batches = deliveries = 0
    if floor is not None:
        batches = _repeat(connection, "prune_batches", rows_at_once, floor=floor, keep_s=keep_s)
        reach("retention.after_ledger")
        deliveries = _repeat(connection, "prune_deliveries", rows_at_once, floor=floor, keep_s=keep_s)
    processes = _repeat(connection, "prune_processes", rows_at_once, keep_s=keep_s)
    _repeat(connection, "prune_replay_keys", rows_at_once, keep_s=keep_s)
    replays = _repeat(connection, "prune_replays", rows_at_once, keep_s=keep_s)
    return Pruned(batches, deliveries, processes, replays)


def _repeat(connection: psycopg.Connection[Any], name: str, rows: int, **parameters: int) -> int:
    deleted = 0
    while True:
        step = connection.execute(statement(SQL, name), {"rows": rows, **parameters}).rowcount
        deleted += step
        if step:
            reach("retention.during_pruning")
        if step < rows:
            return deleted
