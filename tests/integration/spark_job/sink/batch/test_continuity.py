"""A batch begins where the ledger ends, is written once, and takes the next number of the ledger."""

from collections.abc import Callable

import psycopg
import pytest

from db.connection import Connection
from service.errors import ContinuityError, MovedError
from service.settings import JobSettings
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets
from spark_job.input.topics import InputTopics
from spark_job.ledger import ownership, position
from spark_job.supervisor.attempts import passes_by_itself
from tests.support.sink.batches import P0, P1, SinkRun, session
from tests.support.sink.written import nothing_is_written, one

E = OutputEvent


@pytest.mark.guarantee(22)
def test_a_batch_that_is_in_the_outbox_cannot_be_written_again(
    sink_run: SinkRun, connection: Connection, as_writer: Callable[[], Connection]
) -> None:
    """By the same run neither, which did not learn of its commit, nor by one that begins at an older position."""
    before = sink_run.sink.position
    rows = session("a", 0, 9, [E("t", b"v")])
    sink_run.write(0, rows)
    with pytest.raises(ContinuityError, match=r"does not begin where the ledger ends: .*/0: 0 != 100"):
        sink_run.write(0, rows)
    for number in (0, 1):
        sink_run.plan(number, (0, 0), (100, 50))
        with pytest.raises(MovedError, match=r"ledger ends with batch 1 .* this run has written batch None"):
            sink_run.write(number, rows, sink=sink_run.new_sink(at=before))
    assert nothing_is_written(connection, but_batches=1)


@pytest.mark.guarantee(43)
def test_a_batch_that_starts_elsewhere_than_the_ledger_ends_is_refused(
    sink_run: SinkRun, connection: Connection
) -> None:
    sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    for start in (99, 101):
        sink_run.plan(1, (start, 50), (200, 90))
        with pytest.raises(
            ContinuityError, match=rf"does not begin where the ledger ends: .*/0: {start} != 100"
        ):
            sink_run.write(1, session("b", 110, 119, [E("t", b"v")]))
    assert nothing_is_written(connection, but_batches=1)


@pytest.mark.guarantee(43)
def test_a_ledger_that_lost_its_end_is_not_gone_on_with(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    """The database was restored under the running job."""
    sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DELETE FROM outbox.session_output")
        owner.execute("DELETE FROM outbox.batch")
    with pytest.raises(MovedError, match="ledger ends with batch None") as caught:
        sink_run.write(1, session("b", 110, 119, [E("t", b"v")]))
    assert passes_by_itself(caught.value)
    assert nothing_is_written(connection)


@pytest.mark.guarantee(43)
def test_a_generation_that_a_command_opened_meanwhile_is_not_written_into(
    sink_run: SinkRun, connection: Connection
) -> None:
    sink = sink_run.sink
    SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    with connection.transaction():
        ownership.take_over(connection, sink_run.run_id, JobSettings(), force=True)
    with pytest.raises(MovedError, match="of generation 2, this run has written batch None of generation 1"):
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]), sink=sink)
    assert nothing_is_written(connection)


@pytest.mark.guarantee(22)
def test_spark_counts_anew_with_each_run_and_the_ledger_does_not(
    sink_run: SinkRun, connection: Connection
) -> None:
    sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    after = SinkRun(connection, Offsets({P0: 100, P1: 50}), reason="savepoint")
    after.plan(0, (100, 50), (200, 90))
    after.write(0, session("b", 110, 119, [E("t", b"v")]))
    rows = "SELECT array_agg((batch_id, spark_batch, generation)::text ORDER BY batch_id) FROM outbox.batch"
    assert one(connection, rows) == ["(1,0,1)", "(2,0,2)"]
    found = position.read(connection)
    assert found is not None
    assert found.batch_id == 2


def test_a_number_of_spark_that_comes_twice_in_a_run_is_refused(
    sink_run: SinkRun, connection: Connection
) -> None:
    sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    sink_run.plan(0, (100, 50), (200, 90))
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        sink_run.write(0, session("b", 110, 119, [E("t", b"v")]))
    assert caught.value.diag.constraint_name == "batch_spark_batch_key"
    assert nothing_is_written(connection, but_batches=1)


def test_a_batch_without_offsets_writes_nothing(sink_run: SinkRun, connection: Connection) -> None:
    sink_run.plan(0, (0, 0), (0, 0))
    assert sink_run.write(0) is None
    assert one(connection, "SELECT count(*) FROM outbox.batch") == 0


@pytest.mark.guarantee(43)
def test_a_topic_that_was_made_again_is_noticed_after_the_action_and_nothing_is_written(
    sink_run: SinkRun, connection: Connection
) -> None:
    """And before the writer lock is taken: Kafka may take its time."""

    def input_topics() -> InputTopics:
        locks = "SELECT count(*) FROM pg_locks WHERE relation = to_regclass('outbox.writer_lock') AND pid = pg_backend_pid()"
        assert one(connection, locks) == 0
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        raise ContinuityError("the topic was made again")

    with pytest.raises(ContinuityError, match="made again"):
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]), input_topics=input_topics)
    assert nothing_is_written(connection)
