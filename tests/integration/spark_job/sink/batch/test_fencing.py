"""Only the run that owns the outbox writes: a zombie is fenced, and an outbox that does not know the run has moved."""

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest

from db.connection import Connection
from service.errors import FencedError, MovedError
from service.settings import JobSettings
from spark_job import OutputEvent
from spark_job.ledger import ownership
from spark_job.supervisor.attempts import passes_by_itself
from tests.support.sink.batches import SinkRun, session
from tests.support.sink.written import counted, nothing_is_written

E = OutputEvent


@pytest.mark.guarantee(26)
def test_a_zombie_is_fenced_and_writes_nothing(
    sink_run: SinkRun, database: str, as_writer: Callable[[], Connection]
) -> None:
    before = counted("takeovers")
    rows = session("a", 0, 9, [E("t", b"v")])
    with psycopg.connect(database, autocommit=True) as other:
        successor = SinkRun(other)
        assert counted("takeovers") - before == 1
        with pytest.raises(psycopg.OperationalError):
            sink_run.write(0, rows)  # the takeover has ended the zombie's own backend
        with pytest.raises(FencedError, match=rf"run {successor.run_id} .* has taken this outbox over"):
            sink_run.write(0, rows, sink=sink_run.new_sink(as_writer()))
        assert nothing_is_written(other)


def test_a_zombie_is_fenced_by_its_run_where_the_position_is_still_its_own(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    """The next run has begun, and written nothing yet; nobody was allowed to end the zombie's backend."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.writer SET run_id = gen_random_uuid()")
    with pytest.raises(FencedError):
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    assert nothing_is_written(connection)


def test_a_zombie_in_an_outbox_that_nobody_owns_has_to_look_anew(
    sink_run: SinkRun, connection: Connection
) -> None:
    """A command used it meanwhile."""
    ownership.give_back(connection, sink_run.run_id)
    with pytest.raises(MovedError, match=r"no later one does.*Nothing was written") as caught:
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    assert passes_by_itself(caught.value)
    assert nothing_is_written(connection)


@pytest.mark.parametrize("has_an_owner", [True, False])
def test_an_outbox_that_does_not_know_the_run_has_moved_and_the_next_attempt_looks_anew(
    sink_run: SinkRun, connection: Connection, database: str, has_an_owner: bool
) -> None:
    """A failover to a standby that has not got the start: nobody owns the outbox there, or a run of before does."""
    ownership.give_back(connection, sink_run.run_id)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DELETE FROM outbox.run")
    if has_an_owner:
        with connection.transaction():
            ownership.take_over(connection, uuid4(), JobSettings(), force=False)
    with pytest.raises(MovedError, match="Nothing was written") as caught:
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    assert passes_by_itself(caught.value)
    assert nothing_is_written(connection)
