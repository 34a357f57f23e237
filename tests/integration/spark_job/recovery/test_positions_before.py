"""The newest position that has read nothing at some offsets or above: what `spark-job savepoint create --at` names."""

import random

import pytest

from db.connection import Connection
from db.statements import queries
from service.errors import SettingsError
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets
from spark_job.ledger import position
from spark_job.ledger import savepoints as savepoints
from spark_job.ledger.open_partitions import OpenPartition
from spark_job.ledger.savepoints import Savepoint
from tests.support.sink.batches import P0, P1, SinkRun, session, still_open

_WRITER = queries("spark_job", "writer")
EVENT = [OutputEvent("out", b"1")]


def create(connection: Connection, name: str, p0: int, p1: int) -> Savepoint:
    with connection.transaction():
        connection.execute(_WRITER["lock"])
        return savepoints.create(connection, name, Offsets({P0: p0, P1: p1}))


def written(connection: Connection, ends: list[tuple[int, int]], of: SinkRun | None = None) -> SinkRun:
    """Batches that end there."""
    sink_run = of or SinkRun(connection)
    at = sink_run.generation.start
    before = (at.at(P0), at.at(P1))
    for number, end in enumerate(ends):
        sink_run.plan(number, before, end)
        sink_run.write(number, session(f"k-{end}", before[0], end[0] - 1, EVENT), still_open(0, end[0] - 1))
        before = end
    return sink_run


def test_it_is_a_batch_with_what_was_open_there(connection: Connection) -> None:
    written(connection, [(10, 0), (20, 5), (30, 5)])
    found = create(connection, "x", 25, 5)
    assert (found.generation, found.batch_id) == (1, 2)
    assert found.end == {P0: 20, P1: 5}
    assert found.open == {P0: OpenPartition(19, 1, 2, 10, "3-digest of [19]")}
    # One partition alone holds it back.
    assert create(connection, "y", 1_000, 4).batch_id == 1
    assert create(connection, "z", 9, 0).batch_id is None


def test_it_is_the_same_as_looking_at_every_row(connection: Connection) -> None:
    rng = random.Random(39)
    ends = [(0, 0)]
    for _ in range(23):
        ends.append((ends[-1][0] + rng.randint(1, 9), ends[-1][1] + rng.randint(0, 3)))
    sink_run = written(connection, ends[1:])
    # Retries of letters and what retention has pruned leave holes.
    for gone in (3, 8, 9, 10, 17):
        connection.execute("SET ROLE NONE")
        connection.execute("DELETE FROM outbox.batch WHERE batch_id = %s", [gone])
        connection.execute("SET ROLE outbox_writer")
    kept = {number: ends[number] for number in range(1, 24) if number not in (3, 8, 9, 10, 17)}
    for _ in range(60):
        bounds = rng.randint(0, ends[-1][0] + 5), rng.randint(0, ends[-1][1] + 2)
        fitting = [number for number, end in kept.items() if end[0] <= bounds[0] and end[1] <= bounds[1]]
        found = position.read_before(connection, Offsets({P0: bounds[0], P1: bounds[1]}))
        assert found is not None
        assert found.generation.number == sink_run.generation.number
        assert found.batch_id == max(fitting, default=None), bounds


def test_before_a_generation_it_is_one_of_the_generation_before(connection: Connection) -> None:
    written(connection, [(10, 0), (20, 5), (30, 5)])
    written(connection, [(35, 5)], SinkRun(connection, Offsets({P0: 30, P1: 5}), reason="changed_assembly"))
    found = create(connection, "x", 25, 5)
    assert (found.generation, found.batch_id) == (1, 2)
    assert found.end == {P0: 20, P1: 5}
    assert (create(connection, "y", 33, 5).generation, create(connection, "z", 35, 9).batch_id) == (2, 4)


def test_in_a_reissue_that_has_not_come_so_far_it_is_where_the_reissue_is(connection: Connection) -> None:
    written(connection, [(10, 0), (20, 5), (30, 5)])
    written(connection, [(15, 0)], SinkRun(connection, Offsets({P0: 10, P1: 0}), 1, "savepoint"))
    found = create(connection, "x", 25, 5)
    assert found.generation == 2
    assert found.end == {P0: 15, P1: 0}


def test_before_the_outbox_began_there_is_none(connection: Connection) -> None:
    written(connection, [(20, 5)], SinkRun(connection, Offsets({P0: 10, P1: 0})))
    with pytest.raises(
        SettingsError, match=r"no position before input/0: 9, input/1: 0: the outbox began later"
    ):
        create(connection, "x", 9, 0)
    assert savepoints.all(connection) == []
