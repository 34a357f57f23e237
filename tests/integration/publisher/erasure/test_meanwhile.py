"""A command or a batch that stores a row of a key while the key is erased: the row is erased too, or named as left."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from publisher.erasure.erase import Erasure
from publisher.outbox import parked
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.old_outputs import deliver_all
from tests.support.queries import query

KEY = "person-4711"
LEFT = "SELECT batch_id FROM outbox.session_output WHERE session_key = %s"


@pytest.fixture
def outbox(database: str) -> Outbox:
    """A delivered row of the key."""
    made = Outbox(database, "out")
    made.batch({KEY: [Session([b"value"], 7)]})
    made.batch(simple(2, keys=1))
    deliver_all(database, 2)
    return made


@pytest.fixture
def eraser(outbox: Outbox) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(outbox.dsn, autocommit=True, options="-c role=outbox_eraser") as connection:
        yield connection


def once(of: Callable[..., Any], then: Callable[[], object]) -> Callable[..., Any]:
    """Return the function, which does something else after its first call, too."""
    pending = [then]

    def call(*arguments: Any) -> Any:
        found = of(*arguments)
        while pending:
            pending.pop()()
        return found

    return call


@pytest.mark.parametrize("is_delivered", [True, False], ids=["delivered by then", "not delivered"])
def test_a_row_that_is_requeued_after_the_rows_were_read(
    outbox: Outbox, eraser: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, is_delivered: bool
) -> None:
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " VALUES (%s, 1, 1, 0, 1, 'invalid', 'x')",
        KEY,
    )

    def requeue() -> None:
        with psycopg.connect(outbox.dsn, autocommit=True, options="-c role=outbox_publisher") as connection:
            assert parked.requeue(connection, parked.Choice(2)).batches == [3]
        deliver_all(outbox.dsn, 3 if is_delivered else 2)

    monkeypatch.setattr(Erasure, "_rows", once(Erasure._rows, requeue))
    erasure = Erasure(eraser, [KEY])
    erasure.run(0)
    assert query(outbox.dsn, LEFT, KEY) == ([] if is_delivered else [(3,)])
    assert erasure.is_something_left is not is_delivered
    assert [line[:38] for line in erasure.keys[KEY].left] == (
        [] if is_delivered else ["the row of batch 3 is not delivered ye"]
    )


def test_a_letter_that_is_retried_after_the_rows_were_erased(
    outbox: Outbox, eraser: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    query(
        outbox.dsn,
        "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation,"
        " batch_id, session_key, detail, event_count, event_offsets, event_times_ms, event_values)"
        " VALUES (%s, 't', 0, 9, 9, 9, 'transform_failed', 1, 1, %s, 'x', 1, '{9}', '{9}', '{a}')",
        TOPIC_ID,
        KEY,
    )

    def retry() -> None:
        batch = outbox.batch({KEY: [Session([b"value"], 9)]})
        query(outbox.dsn, "UPDATE outbox.dead_letter SET state = 'resolved', resolved_batch = %s", batch)
        deliver_all(outbox.dsn, batch)

    monkeypatch.setattr(Erasure, "_erase_rows", once(Erasure._erase_rows, retry))
    erasure = Erasure(eraser, [KEY])
    erasure.run(0)
    assert query(outbox.dsn, LEFT, KEY) == []
    assert (erasure.keys[KEY].rows, erasure.keys[KEY].letters, erasure.is_something_left) == (2, 1, False)


def test_a_batch_of_a_reissue_that_had_asked_before_which_keys_are_erased(
    outbox: Outbox, eraser: psycopg.Connection[Any]
) -> None:
    """The command begins only when no such batch is under way."""
    with psycopg.connect(outbox.dsn) as job:
        job.execute("SELECT outbox.lock_writer()")
        eraser.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            eraser.execute("SELECT outbox.begin_erasure(ARRAY[%s])", [KEY])


def test_the_copy_of_a_row_that_a_replay_needs_stays_with_the_row(
    outbox: Outbox, eraser: psycopg.Connection[Any]
) -> None:
    """Audits look for the copy as long as the row is there."""
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT session_key, batch_id, 1, lane, 1, 'invalid', 'x' FROM outbox.session_output WHERE session_key = %s",
        KEY,
    )
    for batch in (3, 4):  # the copy is parked and requeued, too
        with psycopg.connect(outbox.dsn, autocommit=True, options="-c role=outbox_publisher") as connection:
            assert parked.requeue(connection, parked.Choice(batch - 1)).batches == [batch]
        deliver_all(outbox.dsn, batch)
        if batch == 3:
            query(
                outbox.dsn,
                "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
                " SELECT session_key, batch_id, 1, lane, 1, 'invalid', 'x' FROM outbox.session_output WHERE batch_id = 3",
            )
    query(
        outbox.dsn,
        "INSERT INTO outbox.replay (from_batch, to_batch, target_cluster_id, target_servers, rows_total, events_total, lease_holder,"
        " lease_until, lease_backend_pid) VALUES (1, 2, 'c', 's', 1, 1, 'me', now() + interval '1 hour', 1)",
    )
    erasure = Erasure(eraser, [KEY])
    erasure.run(0)
    assert query(outbox.dsn, LEFT, KEY) == [(1,), (3,), (4,)]
    assert [line.partition(":")[0] for line in erasure.keys[KEY].left] == [
        f"replay 1 needs the row of batch {batch}" for batch in (1, 3, 4)
    ]
    query(outbox.dsn, "UPDATE outbox.replay SET lease_until = now()")
    again = Erasure(eraser, [KEY])
    again.run(0)
    assert (query(outbox.dsn, LEFT, KEY), again.is_something_left) == ([], False)
