"""What is not promised: letters of an old input, read again, are compared with the outputs that retention has left."""

import psycopg
import pytest

from spark_job import OutputEvent
from spark_job.ledger import Connection
from spark_job.offsets import Offsets
from tests.integration.job.letter_world import failed, retry, states
from tests.integration.job.sink_world import P0, P1, World, session, summary


@pytest.mark.parametrize("dropped", [False, True], ids=["outputs are there", "outputs are dropped"])
def test_a_letter_read_again_is_known_as_delivered_only_while_its_outputs_are_there(
    writing: Connection, database: str, dropped: bool
) -> None:
    world = World(writing)
    world.plan(0, (0, 0), (100, 50))
    world.write(0, session("k", 10, 12, [OutputEvent("t", b"v")]), summary(0, {}))
    sent = writing.execute("SELECT outbox_id FROM outbox.event").fetchall()
    if dropped:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("DELETE FROM outbox.session_output")
    # An older savepoint is restored, with a transform that fails for what the earlier one could do.
    again = World(writing, high_water=Offsets({P0: 100, P1: 50}))
    again.plan(0, (0, 0), (100, 50))
    written = again.write(0, failed("k"), summary(0, {}))
    assert written is not None
    assert written.dead_letters == dropped
    retry(writing, database)
    assert states(writing) == ({"k": ("resolved", 3)} if dropped else {})
    # Dropped or not, it is the id that consumers have seen: they can drop it.
    assert writing.execute("SELECT outbox_id FROM outbox.event").fetchall() == sent
