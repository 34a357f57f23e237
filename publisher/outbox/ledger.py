"""Reads the job's ledger: its newest batch, the commit id of a batch, the number of lanes."""

from typing import Any
from uuid import UUID

import psycopg

from db.statements import queries

_LEDGER = queries("publisher", "ledger")


def newest_batch(connection: psycopg.Connection[Any]) -> int:
    """Return the newest batch id, 0 if there is no batch."""
    row = connection.execute(_LEDGER["end"]).fetchone()
    return 0 if row is None else row[0]


def commit_id_at(connection: psycopg.Connection[Any] | psycopg.Cursor[Any], batch_id: int) -> UUID | None:
    """Return the commit id of a batch, None if the ledger has no such row."""
    row = connection.execute(_LEDGER["commit_id"], {"batch_id": batch_id}).fetchone()
    return None if row is None else row[0]


def newest_lane_count(connection: psycopg.Connection[Any]) -> int | None:
    """Return the number of lanes of the newest epoch, None before the first one."""
    row = connection.execute(_LEDGER["newest_lane_count"]).fetchone()
    return None if row is None else row[0]
