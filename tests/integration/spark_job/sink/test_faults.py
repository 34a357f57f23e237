"""A failure at any step of the sink's transaction leaves the whole batch or nothing of it; the next run stores what is missing, once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from db.connection import Connection
from service.errors import ContinuityError
from service.lifecycle import fault_points
from service.lifecycle.fault_points import POINTS, Action, Fault, FaultPlan, InjectedFaultError
from spark_job import OutputEvent
from tests.support.sink.batches import Row, SinkRun, letter, session, still_open

SINK = [point for point in POINTS if point.startswith("sink.")]
BATCH: list[Row] = [
    session("a", 1, 3, [OutputEvent("t", b"1"), OutputEvent("t", None)]),
    session("b", 4, 6, [OutputEvent("t", b"2")]),
    letter("c", 7, 9, "restarted"),
    still_open(0, 8, events=9),
]


@pytest.fixture
def sink_run(as_writer: Callable[[], Connection]) -> SinkRun:
    sink_run = SinkRun(as_writer())
    sink_run.plan(0, (0, 0), (100, 50))
    return sink_run


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[FaultPlan]:
    """The faults of this process."""
    made = FaultPlan(tmp_path / "faults.json")
    fault_points.arm(made.file)
    yield made
    fault_points.arm(None)


@pytest.mark.guarantee(21, 56)
@pytest.mark.parametrize("point", SINK)
def test_a_failure_at_any_step_leaves_the_whole_batch_or_nothing_and_the_next_run_continues_from_there(
    sink_run: SinkRun, database: str, plan: FaultPlan, point: str
) -> None:
    before = written(database)
    plan.write(Fault(point, Action.RAISE))
    with pytest.raises(InjectedFaultError):
        sink_run.write(0, *BATCH)
    assert plan.pending() == []
    assert locks(database) == []
    is_stored = point == "sink.after_commit"
    assert (written(database) != before) is is_stored
    following = sink_run.new_sink()
    if is_stored:
        with pytest.raises(ContinuityError, match="does not begin where the ledger ends"):
            sink_run.write(0, *BATCH, sink=following)
    else:
        assert sink_run.write(0, *BATCH, sink=following) is not None
    assert written(database) == ([(1, 0, 1, 8)], [("a", 1, 2), ("b", 1, 1)], [("c", 7, 1)])
    sink_run.plan(1, (100, 50), (200, 50))
    committed = sink_run.write(1, session("d", 100, 103, []), sink=following)
    assert committed is not None
    assert committed.batch_id == 2


def written(dsn: str) -> tuple[list[Any], ...]:
    """(batch, Spark batch, letters, safe offset), (key, batch, outputs), (key, first offset, batch): read on another connection."""
    with psycopg.connect(dsn) as connection:
        return (
            connection.execute(
                "SELECT batch_id, spark_batch, dead_letters, (jsonb_path_query_first(open_state, '$.*.*.safe'))::int"
                " FROM outbox.batch ORDER BY 1"
            ).fetchall(),
            connection.execute(
                "SELECT session_key, batch_id, cardinality(topics) FROM outbox.session_output ORDER BY 1, 2"
            ).fetchall(),
            connection.execute(
                "SELECT session_key, first_offset, batch_id FROM outbox.dead_letter ORDER BY 1, 2"
            ).fetchall(),
        )


def locks(dsn: str) -> list[Any]:
    """What the sink's connection still holds: locks, staging tables."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT locktype FROM pg_locks WHERE relation = to_regclass('outbox.writer_lock')"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " UNION ALL SELECT relname FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
        ).fetchall()
