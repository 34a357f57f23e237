"""The ledger row says of every partition what is open there."""

import pytest

from db.connection import Connection
from service.errors import ContinuityError, SettingsError
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger import position
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.sink.computed_batch import BatchRange
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, session, still_open
from tests.support.sink.written import nothing_is_written, of_batch

E = OutputEvent


@pytest.mark.guarantee(42)
def test_the_ledger_says_of_every_partition_what_is_open_there(
    sink_run: SinkRun, connection: Connection
) -> None:
    """A partition without new records keeps its own, one without open sessions is not named."""
    sink_run.plan(0, (0, 0), (100, 50))
    sink_run.write(0, still_open(0, 40, 60), still_open(1, 20))
    assert of_batch(connection, 1) == (
        Offsets({P0: 0, P1: 0}),
        Offsets({P0: 100, P1: 50}),
        OpenPartitions(
            {
                P0: OpenPartition(40, 2, 4, 20, "3-digest of [40, 60]"),
                P1: OpenPartition(20, 1, 2, 10, "3-digest of [20]"),
            }
        ),
    )
    sink_run.plan(1, (100, 50), (200, 50))
    sink_run.write(1, still_open(0))
    assert of_batch(connection, 2) == (
        Offsets({P0: 100, P1: 50}),
        Offsets({P0: 200, P1: 50}),
        OpenPartitions({P1: OpenPartition(20, 1, 2, 10, "3-digest of [20]")}),
    )


@pytest.mark.guarantee(19)
def test_a_slice_of_nothing_but_aborted_records_moves_the_end_and_keeps_what_is_open(
    sink_run: SinkRun, connection: Connection
) -> None:
    """It reaches no task. What is not open anywhere is needed from the end on."""
    sink_run.write(0, still_open(0, 40))
    sink_run.write(1)
    start, end, opened = of_batch(connection, 2)
    assert (start, end) == (Offsets({P0: 100, P1: 50}), Offsets({P0: 200, P1: 90}))
    assert list(opened) == [P0]
    found = position.read(connection)
    assert found is not None
    assert found.safe_offsets == {P0: 40, P1: 90}


@pytest.mark.guarantee(20)
def test_tombstones_travel_on_the_ledger_row_and_hold_the_safe_offset_nowhere(
    sink_run: SinkRun, connection: Connection
) -> None:
    sink_run.write(0, still_open(0, tombstones=b"\x00too large"), still_open(1, 20))
    _, _, opened = of_batch(connection, 1)
    assert opened[P0] == OpenPartition(100, 0, 0, 0, "3-digest of []", b"\x00too large")
    sink_run.write(1)  # nothing but aborted records
    _, _, opened = of_batch(connection, 2)
    assert {where: each.safe for where, each in opened.items()} == {P0: 200, P1: 20}


def test_a_partition_that_appears_during_a_run_begins_where_spark_began_it(
    sink_run: SinkRun, connection: Connection
) -> None:
    added = TopicPartition(TOPIC_ID, 2)
    sink_run.write(0)
    sink_run.topics = InputTopics({"input": TOPIC_ID}, {"input": [0, 1, 2]})
    end = Offsets({P0: 200, P1: 90, added: 7})
    sink_run.planned[1] = BatchRange(Offsets({P0: 100, P1: 50}), end)
    sink_run.write(1, session("a", 1, 2, [E("t", b"v")], source=2), still_open(2, 5))
    start, found, opened = of_batch(connection, 2)
    assert (start.at(added), found, list(opened)) == (0, end, [added])
    sink_run.planned[2] = BatchRange(Offsets({**end, added: 6}), Offsets({**end, added: 9}))
    with pytest.raises(ContinuityError, match=r"/2: 6 != 7"):
        sink_run.write(2)


@pytest.mark.guarantee(43)
def test_a_partition_that_came_from_two_tasks_is_refused(sink_run: SinkRun, connection: Connection) -> None:
    with pytest.raises(SettingsError, match="minPartitions"):
        sink_run.write(0, still_open(0), still_open(0))
    assert nothing_is_written(connection)
