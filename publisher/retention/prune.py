"""Deletes rows that the ledger no longer needs, each step in a short transaction, so that a kill between two steps loses nothing.

Which rows those are is decided in Postgres: `outbox.prune_batches` and the other `prune_` functions in db/schema.sql.
"""

from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from db import operations
from db.statements import queries
from publisher.retention.delivery_pruning import DeliveryPruning
from publisher.retention.letters import remove_letters
from service.lifecycle.fault_points import reach
from service.settings import RetentionSettings

_PRUNING = queries("publisher.retention", "pruning")

_COMMAND = "publisher retention run"

ROWS_AT_ONCE = 5_000
"""The most rows that one transaction deletes."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows of each kind were deleted."""

    batches: int = 0
    deliveries: int = 0
    parked: int = 0
    letters: int = 0
    epochs: int = 0
    processes: int = 0
    replays: int = 0
    operations: int = 0


def prune(
    connection: psycopg.Connection[Any],
    retention: RetentionSettings,
    keep_deliveries_s: int,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Pruned:
    """Delete rows that are older than `keep_ledger_s` and that no other row refers to. Deliveries, letters and the operator log have their
    own limits.

    `connection` must be in autocommit mode. The functions in Postgres decide which rows stay whatever their age. Raises psycopg.Error.
    """
    keep_s = retention.keep_ledger_s
    deliveries = DeliveryPruning(keep_deliveries_s).whole_pass(connection)
    letters = remove_letters(connection, retention)
    _repeat(connection, "resumes", _PRUNING["resumes"], rows_at_once, keep_s)
    parked = _repeat(connection, "parked", _PRUNING["parked"], rows_at_once, keep_s)
    # Before the ledger: epochs and their lanes refer to its rows.
    epochs = _prune_epochs(connection, keep_s)
    batches = _prune_batches(connection, keep_s, rows_at_once)
    _repeat(connection, "erased", _PRUNING["erased"], rows_at_once, keep_s)
    reach("retention.after_ledger")
    processes = _repeat(connection, "processes", _PRUNING["processes"], rows_at_once, keep_s)
    _repeat(connection, "replay_keys", _PRUNING["replay_keys"], rows_at_once, keep_s)
    replays = _repeat(connection, "replays", _PRUNING["replays"], rows_at_once, keep_s)
    keep_operations_s = retention.keep_operations_s
    operations = _repeat(connection, "operations", _PRUNING["operations"], rows_at_once, keep_operations_s)
    return Pruned(batches, deliveries, parked, letters, epochs, processes, replays, operations)


def _prune_epochs(connection: psycopg.Connection[Any], keep_s: int) -> int:
    with connection.transaction():
        row = connection.execute(_PRUNING["epochs"], {"keep_s": keep_s}).fetchone()
        epochs: list[int] = [] if row is None else row[0]
        if epochs:
            operations.record(connection, _COMMAND, {}, {"lane_epochs": epochs})
    return len(epochs)


def _prune_batches(connection: psycopg.Connection[Any], keep_s: int, rows: int) -> int:
    """Prune the ledger in one pass, from its beginning to the first row that is too young."""
    pruned, after, more = 0, 0, True
    while more:
        parameters = {"keep_s": keep_s, "rows": rows, "after": after}
        with connection.transaction():
            row = connection.execute(_PRUNING["batches"], parameters).fetchone()
            assert row is not None
            deleted, after, more = row
            if deleted:
                operations.record(connection, _COMMAND, {}, {"ledger_rows": deleted, "up_to_batch": after})
        pruned += deleted
        if deleted:
            reach("retention.during_pruning")
    return pruned


def _repeat(
    connection: psycopg.Connection[Any], what: str, query: LiteralString, rows: int, keep_s: int
) -> int:
    deleted = 0
    while True:
        with connection.transaction():
            row = connection.execute(query, {"rows": rows, "keep_s": keep_s}).fetchone()
            assert row is not None
            step: int = row[0]
            if step:
                operations.record(connection, _COMMAND, {}, {what: step})
        deleted += step
        if step:
            reach("retention.during_pruning")
        if step < rows:
            return deleted
