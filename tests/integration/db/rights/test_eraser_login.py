"""What somebody with the login of `publisher erase` cannot do, and what the functions find, whatever the key is."""

import psycopg
import pytest
from psycopg import errors

from publisher.protocol.refusals import Refusal
from publisher.replay.delivery import explain_refused
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.old_outputs import deliver_all
from tests.support.queries import query

ERASER = "-c role=outbox_eraser"
KEYS = ["plain", "it's", 'say "it"', "back\\slash", "tab\tkey", "%s", "\u200b"]


@pytest.fixture
def delivered(database: str) -> Outbox:
    """One batch that is delivered."""
    outbox = Outbox(database, "out")
    outbox.batch(simple(1, keys=3))
    deliver_all(database, 1)
    return outbox


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_transaction_that_looked_before_the_lane_was_set_back_erases_nothing(
    delivered: Outbox, isolation: str
) -> None:
    options = f"{ERASER} -c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    with psycopg.connect(delivered.dsn, options=options) as hostile:
        hostile.execute("SELECT FROM outbox.output_partition")
        query(delivered.dsn, "UPDATE outbox.lane SET cursor_key = 'a'")
        with pytest.raises(errors.InvalidTransactionState):
            hostile.execute("SELECT outbox.erase_rows('k0000', ARRAY[1::bigint])")
    assert query(delivered.dsn, "SELECT count(*) FROM outbox.session_output") == [(3,)]


@pytest.mark.parametrize("key", KEYS)
def test_the_reason_of_a_replay_forgets_a_key_however_it_is_spelled(database: str, key: str) -> None:
    said = explain_refused(1, (1, key), Refusal("too_large", "why"))
    query(
        database,
        "INSERT INTO outbox.replay (from_batch, to_batch, target_cluster_id, target_servers, rows_total, events_total, state, reason)"
        " VALUES (1, 7, 'c', 's', 1, 1, 'cancelled', %s)",
        said,
    )
    query(database, "SELECT outbox.erase_traces(%s)", key)
    ((reason,),) = query(database, "SELECT reason FROM outbox.replay")
    assert reason == said.replace(f"'{key}'", "(erased)")
