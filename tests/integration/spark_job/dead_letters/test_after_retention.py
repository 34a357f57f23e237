"""What is not promised: whether a letter's outputs were delivered long ago is forgotten with the outputs."""

import psycopg
import pytest

from db.connection import Connection
from spark_job import OutputEvent
from tests.support.outbox.letters import failed, retry, states
from tests.support.sink.batches import SinkRun, session, still_open


@pytest.mark.parametrize("dropped", [False, True], ids=["outputs are there", "outputs are dropped"])
def test_a_letter_of_a_reissue_is_written_and_retried_whether_or_not_its_outputs_are_still_there(
    connection: Connection, database: str, dropped: bool
) -> None:
    """An older savepoint is restored, with a transform that fails for what the earlier one could do."""
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (100, 50))
    sink_run.write(0, session("k", 10, 12, [OutputEvent("t", b"v")]), still_open(0))
    sent = connection.execute("SELECT outbox_id FROM outbox.event").fetchall()
    if dropped:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("DELETE FROM outbox.session_output")
    again = SinkRun(connection, revision=1)
    again.plan(0, (0, 0), (100, 50))
    written = again.write(0, failed("k"))
    assert written is not None
    assert written.dead_letters == 1
    retry(connection, database)
    assert states(connection) == {"k": ("resolved", 3)}
    # Dropped or not, it is the id that consumers have seen, with a greater revision: they can drop it.
    found = connection.execute("SELECT outbox_id FROM outbox.event WHERE revision = 1").fetchall()
    assert found == sent
