"""Savepoints name positions of the ledger; requests reach one run and are answered once."""

from uuid import uuid4

import pytest

from db.connection import Connection
from db.statements import queries
from service.errors import SettingsError
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets
from spark_job.ledger import requests, savepoints
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.savepoints import Savepoint
from spark_job.recovery.savepoint_restore import greatest_position
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, session, still_open

_WRITER = queries("spark_job", "writer")

ROLE = "-c role=outbox_writer"
EVENT = [OutputEvent("out", b"1")]


def create(connection: Connection, name: str) -> Savepoint:
    with connection.transaction():
        connection.execute(_WRITER["lock"])
        return savepoints.create(connection, name)


def test_a_savepoint_is_the_newest_batch_and_stays_there(connection: Connection) -> None:
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (10, 5))
    sink_run.write(0, session("a", 0, 6, EVENT), still_open(0, 7, events=10))
    made = create(connection, "before-deploy")
    sink_run.plan(1, (10, 5), (20, 5))
    sink_run.write(1, session("a", 10, 19, EVENT))

    found = savepoints.get(connection, "before-deploy")
    assert found == made
    assert (found.generation, found.batch_id, found.revision) == (1, 1, 0)
    assert found.end == {P0: 10, P1: 5}
    assert found.open == {P0: OpenPartition(7, 1, 2, 10, "3-digest of [7]")}
    assert found.safe == {P0: 7, P1: 5}
    assert found.topics == {TOPIC_ID: "input"}
    assert create(connection, "after").batch_id == 2
    assert [savepoint.name for savepoint in savepoints.all(connection)] == ["before-deploy", "after"]


def test_in_a_generation_without_batches_it_is_the_generations_own_start(connection: Connection) -> None:
    SinkRun(connection)
    start, opened = Offsets({P0: 30, P1: 9}), OpenPartitions({P0: OpenPartition(12, 1, 2, 10, "3-digest")})
    SinkRun(connection, start, revision=2, reason="savepoint", opened=opened)
    found = create(connection, "opened")
    assert (found.generation, found.batch_id, found.revision) == (2, None, 2)
    assert (found.end, found.open) == (start, opened)
    assert found.safe == {P0: 12, P1: 9}


@pytest.mark.parametrize("name", ["", "-x", "a b", "ü", "a" * 101, "x\n", "a/b"])
def test_a_name_that_cannot_be_typed_safely_is_refused(connection: Connection, name: str) -> None:
    SinkRun(connection)
    with pytest.raises(SettingsError, match="cannot be a savepoint's name"):
        create(connection, name)


def test_a_name_in_use_is_refused_and_the_transaction_continues(connection: Connection) -> None:
    SinkRun(connection)
    create(connection, "x")
    with connection.transaction():
        connection.execute(_WRITER["lock"])
        with pytest.raises(SettingsError, match="spark-job savepoint delete x"):
            savepoints.create(connection, "x")
        savepoints.create(connection, "y")
    assert [savepoint.name for savepoint in savepoints.all(connection)] == ["x", "y"]


def test_an_outbox_without_a_generation_has_nothing_to_save(connection: Connection) -> None:
    with pytest.raises(SettingsError, match="spark-job run"):
        create(connection, "x")


def test_a_deleted_name_is_free_and_an_unknown_one_is_answered_with_the_nearest(
    connection: Connection,
) -> None:
    sink_run = SinkRun(connection)
    create(connection, "monday")
    sink_run.plan(0, (0, 0), (10, 5))
    sink_run.write(0, still_open(0))
    savepoints.delete(connection, "monday")
    assert savepoints.all(connection) == []
    assert create(connection, "monday").batch_id == 1
    with pytest.raises(SettingsError, match="Did you mean 'monday'"):
        savepoints.get(connection, "mondya")
    with pytest.raises(SettingsError, match="Did you mean 'monday'"):
        savepoints.delete(connection, "mondya")


@pytest.mark.guarantee(90)
def test_the_greatest_position_is_over_all_generations_each_partition_with_what_is_open_there(
    connection: Connection,
) -> None:
    first = SinkRun(connection)
    first.plan(0, (0, 0), (10, 50))
    first.write(0, still_open(0), still_open(1, 44))
    first.plan(1, (10, 50), (100, 50))
    first.write(1, still_open(0, 90))
    # A reissue goes back behind that.
    second = SinkRun(connection, Offsets({P0: 40, P1: 20}), revision=1, reason="savepoint")
    found = greatest_position(connection)
    assert found.end == {P0: 100, P1: 50}
    assert found.open == {
        P0: OpenPartition(90, 1, 2, 10, "3-digest of [90]"),
        P1: OpenPartition(44, 1, 2, 10, "3-digest of [44]"),
    }
    second.plan(0, (40, 20), (60, 70))
    second.write(0, still_open(0, 55), still_open(1, 66))
    found = greatest_position(connection)
    assert found.end == {P0: 100, P1: 70}
    assert {where: opened.safe for where, opened in found.open.items()} == {P0: 90, P1: 66}
    # A start counts even before its generation has a batch.
    SinkRun(connection, Offsets({P0: 200, P1: 0}), reason="data_loss")
    found = greatest_position(connection)
    assert found.end == {P0: 200, P1: 70}
    assert list(found.open) == [P1]


def test_a_request_reaches_its_run_only_and_is_answered_once(connection: Connection) -> None:
    run, other = uuid4(), uuid4()
    assert requests.pending(connection, run) is None
    first = requests.ask(connection, run, "stop", {"savepoint": "x"})
    second = requests.ask(connection, run, "restore", {"policy": "skip"})
    assert requests.pending(connection, other) is None
    assert requests.pending(connection, run) == requests.JobRequest(first, run, "stop", {"savepoint": "x"})
    assert requests.outcome(connection, first) is None

    requests.answer(connection, first, "refused", "there is a savepoint 'x' already")
    assert requests.outcome(connection, first) == requests.RequestOutcome(
        "refused", "there is a savepoint 'x' already"
    )
    found = requests.pending(connection, run)
    assert found is not None
    assert (found.request_id, found.kind) == (second, "restore")
    requests.answer(connection, second, "done", "done")
    assert requests.pending(connection, run) is None
    with pytest.raises(requests.WithdrawnError, match="withdrawn its request"):
        requests.answer(connection, second, "refused", "again")
    assert not requests.withdraw(connection, second)
    answered = requests.outcome(connection, second)
    assert answered is not None
    assert answered.done


@pytest.mark.guarantee(126)
def test_what_was_taken_back_is_not_done_any_more(connection: Connection) -> None:
    run = uuid4()
    request_id = requests.ask(connection, run, "stop", {})
    assert requests.withdraw(connection, request_id)
    assert requests.pending(connection, run) is None
    with pytest.raises(requests.WithdrawnError), connection.transaction():
        requests.answer(connection, request_id, "done", "stopped")
    requests.refuse(connection, request_id, "no")
    assert requests.outcome(connection, request_id) == requests.RequestOutcome(
        "refused", "withdrawn by the command"
    )


def test_what_was_read_of_offsets_that_kafka_gives_out_again_does_not_count(connection: Connection) -> None:
    """Kafka lost the end of partition 0: its offsets from 100 on mean other records since."""
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (150, 40))
    sink_run.write(0, session("a", 0, 140, EVENT), still_open(0, 90, 120), still_open(1, 30))
    create(connection, "before-the-cut")
    after = SinkRun(
        connection, Offsets({P0: 100, P1: 40}), revision=1, reason="truncation", cut=Offsets({P0: 100})
    )
    after.plan(0, (100, 40), (120, 40))
    after.write(0, session("a", 101, 110, EVENT))
    assert greatest_position(connection).end == {P0: 120, P1: 40}
    old = savepoints.get(connection, "before-the-cut")
    assert old.end == {P0: 100, P1: 40}
    assert old.open == {
        P0: OpenPartition(90, 0, 0, 0, None),
        P1: OpenPartition(30, 1, 2, 10, "3-digest of [30]"),
    }
    assert old.safe == {P0: 90, P1: 30}
    assert create(connection, "after-the-cut").end == {P0: 120, P1: 40}
    SinkRun(connection, Offsets({P0: 80, P1: 40}), revision=2, reason="truncation", cut=Offsets({P0: 80}))
    assert savepoints.get(connection, "before-the-cut").end == {P0: 80, P1: 40}
    assert P0 not in savepoints.get(connection, "before-the-cut").open
