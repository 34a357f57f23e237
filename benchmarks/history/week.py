"""Fills an empty outbox with a synthetic week, by the statements of week.sql."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg

from db.statements import queries

BATCH_SESSIONS = 499
"""As a rule: of 504 slots every 101st is a dead letter."""
INPUT_TOPIC_ID = "Qm9uZVdlZWtPZkhpc3Rvcg"
CLICKS, SESSIONS = "shop.clicks", "shop.sessions"
_WEEK = queries("benchmarks.history", "week")
_AT_ONCE = 100
"""Batches whose rows one statement inserts."""


def load(dsn: str, batches: int, workers: int, advance: Callable[[int], None]) -> None:
    """Fill an outbox that has its schema and nothing else. `advance`: called with the batches whose rows have been inserted."""
    given: dict[str, object] = {"topic_id": INPUT_TOPIC_ID, "run_id": UUID(int=1), "batches": batches}

    def insert_rows(first: int) -> None:
        last = min(first + _AT_ONCE - 1, batches)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_WEEK["insert_rows"], given | {"first": first, "last": last})
        advance(last - first + 1)

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT outbox.ensure_partitions(1, %s)", (batches + 10_000,))
        connection.execute(_WEEK["prepare"], given)
        connection.execute(_WEEK["insert_batches"], given)
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(insert_rows, range(1, batches + 1, _AT_ONCE)))
        connection.execute(_WEEK["insert_dead_letters"], given)
        connection.execute(_WEEK["insert_deliveries"], given)
        connection.execute(_WEEK["advance_lanes"], given)
        connection.execute(_WEEK["insert_replays"], given)
        connection.execute("VACUUM (ANALYZE)")
