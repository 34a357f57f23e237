"""A failure at any step of the sink's transaction leaves nothing of the batch; its repetition stores it once. Without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from db import fault_points
from db.fault_points import POINTS, Action, Fault, InjectedFaultError, Plan
from spark_job import OutputEvent
from tests.integration.job.sink_world import Row, World, letter, session, summary

Connection = psycopg.Connection[TupleRow]

SINK = [point for point in POINTS if point.startswith("sink.")]
REPETITION = "sink.after_comparison"
BATCH: list[Row] = [
    session("a", 1, 3, [OutputEvent("t", b"1"), OutputEvent("t", None)]),
    session("b", 4, 6, [OutputEvent("t", b"2")]),
    letter("c", 7, 9, "restarted"),
    summary(0, {0: 8}, events=9),
]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """As the job connects: with the writer's privileges and no more."""
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_writer") as connection:
        yield connection


@pytest.fixture
def world(connection: Connection) -> World:
    world = World(connection)
    world.plan(0, (0, 0), (100, 50))
    return world


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    """The faults of this process."""
    made = Plan(tmp_path / "faults.json")
    fault_points.arm(made.file)
    yield made
    fault_points.arm(None)


@pytest.mark.parametrize("point", [point for point in SINK if point != REPETITION])
def test_a_failure_at_any_step_leaves_the_whole_batch_or_nothing_and_the_repetition_stores_it_once(
    world: World, database: str, plan: Plan, point: str
) -> None:
    before = written(database)
    plan.write(Fault(point, Action.RAISE))
    with pytest.raises(InjectedFaultError):
        world.write(0, *BATCH)
    assert plan.pending() == []
    assert locks(database) == []
    stored = point == "sink.after_commit"
    assert (written(database) != before) is stored
    assert (world.write(0, *BATCH) is None) is stored
    assert written(database)[:4] == ([(1, 0)], [("a", 1, 2), ("b", 1, 1)], [("c", 7, 1)], [(0, 1)])
    assert recomputed(database) == [(stored, None)]


def test_a_failure_while_a_stored_batch_is_compared_writes_nothing_and_the_comparison_is_made_again(
    world: World, database: str, plan: Plan
) -> None:
    world.write(0, *BATCH)
    before = written(database)
    plan.write(Fault(REPETITION, Action.RAISE))
    with pytest.raises(InjectedFaultError):
        world.write(0, *BATCH)
    assert recomputed(database) == [(False, None)]
    assert world.write(0, *BATCH) is None
    assert recomputed(database) == [(True, None)]
    assert written(database) == before
    assert locks(database) == []


def written(dsn: str) -> tuple[list[Any], ...]:
    """(batch, Spark batch), (key, batch, outputs), (key, first offset, batch), (bucket, batch): read on another connection."""
    with psycopg.connect(dsn) as connection:
        return (
            connection.execute("SELECT batch_id, spark_batch FROM outbox.batch ORDER BY 1").fetchall(),
            connection.execute(
                "SELECT session_key, batch_id, cardinality(topics) FROM outbox.session_output ORDER BY 1, 2"
            ).fetchall(),
            connection.execute(
                "SELECT session_key, first_offset, batch_id FROM outbox.dead_letter ORDER BY 1, 2"
            ).fetchall(),
            connection.execute("SELECT bucket, batch_id FROM outbox.bucket ORDER BY 1").fetchall(),
        )


def recomputed(dsn: str) -> list[Any]:
    """(whether it was run again, the hash where it differed) of each batch."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT recomputed_at IS NOT NULL, recomputed_hash FROM outbox.batch ORDER BY batch_id"
        ).fetchall()


def locks(dsn: str) -> list[Any]:
    """What the sink's connection still holds: locks, staging tables."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT locktype FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " UNION ALL SELECT relname FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
        ).fetchall()
