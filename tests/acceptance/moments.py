"""Moments in the life of a batch: seen from the checkpoint and the ledger, or held."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.acceptance.pipeline import Pipeline, Position


@contextmanager
def held_up_batch(pipeline: Pipeline) -> Iterator[None]:
    """Within the block a batch has all its rows in an open transaction, which waits to write its ledger row."""
    with psycopg.connect(pipeline.dsn) as blocker:
        blocker.execute("LOCK TABLE outbox.batch IN SHARE MODE")
        pipeline.wait_until(
            lambda: pipeline.ask(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'spark-job' AND wait_event_type = 'Lock'",
            ),
            "a batch that waits to write its ledger row",
            alive=(pipeline.job,),
        )
        yield


def is_in_flight(position: Position) -> bool:
    """Spark has planned a batch that the outbox does not have."""
    return position.planned > position.stored


def is_between(position: Position) -> bool:
    """The outbox has a batch that Spark has not committed."""
    return position.stored > position.committed


def is_between_batches(position: Position) -> bool:
    """Spark has committed all that it planned."""
    return position.planned == position.stored == position.committed
