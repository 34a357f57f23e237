"""However much there is of a key, and however many positions and deliveries, the job writes meanwhile."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from publisher.erasure import erase
from publisher.erasure.erase import Erasure
from publisher.erasure.open_sessions import OpenInput, read_open_input
from service.errors import UnavailableError
from tests.support.outbox.batches import TOPIC_ID, Outbox, simple
from tests.support.outbox.old_outputs import deliver_all
from tests.support.queries import query
from tests.support.reference.tombstones import tombstones
from tests.support.waiting import wait_until

KEY = "person-4711"
REMEMBERING = {"safe": 0, "sessions": 0, "events": 0, "bytes": 0, "digest": "d"} | {
    "tombstones": base64.b64encode(tombstones(**{KEY: 5})).decode()
}
STATE = json.dumps({TOPIC_ID: {"0": REMEMBERING}})
COUNT = "SELECT count(*) FROM outbox.batch WHERE open_state::text LIKE '%%tombstones%%'"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
READ_BEFORE = "SELECT count(*) FROM pg_locks w JOIN pg_locks r USING (pid) WHERE NOT w.granted AND r.relation = %s::regclass"
OF_ALL = "k0000"
"""A key with a row in each batch."""
BATCHES = 120


@pytest.fixture
def outbox(database: str) -> Outbox:
    """Many batches, of which all but the newest remember the key."""
    made = Outbox(database, "out")
    for batch in range(1, BATCHES + 1):
        made.batch(simple(batch, keys=1))
    deliver_all(database, BATCHES)
    query(database, "UPDATE outbox.batch SET open_state = %s WHERE batch_id < %s", STATE, BATCHES)
    return made


@contextmanager
def eraser(dsn: str, patience: str = "100ms") -> Iterator[psycopg.Connection]:
    options = f"-c role=outbox_eraser -c lock_timeout={patience}"
    with psycopg.connect(dsn, autocommit=True, options=options) as connection:
        yield connection


def lock_once_it_has_begun(job: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the writer lock when an erasure has noted its keys, for which it needs the lock for a moment."""

    def locked(connection: psycopg.Connection) -> OpenInput:
        job.execute("SELECT outbox.lock_writer()")
        return read_open_input(connection)

    monkeypatch.setattr(erase, "read_open_input", locked)


def test_the_job_writes_while_the_positions_of_the_past_are_read(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(outbox.dsn) as job:
        lock_once_it_has_begun(job, monkeypatch)
        with eraser(outbox.dsn) as connection, pytest.raises(UnavailableError):
            Erasure(connection, [KEY]).run(0)
    assert query(outbox.dsn, COUNT) == [(0,)]


def test_under_the_writer_lock_only_newer_positions_are_searched(outbox: Outbox) -> None:
    with eraser(outbox.dsn) as connection:
        connection.execute("SELECT outbox.erase_traces(%s, %s, 1, 0)", [KEY, BATCHES - 2])
    assert query(outbox.dsn, COUNT) == [(BATCHES - 2,)]


def test_a_position_that_came_meanwhile_is_searched_too(outbox: Outbox) -> None:
    """It remembers the key, was not there when the ledger was read, and is not the newest."""
    with ThreadPoolExecutor(1) as pool, eraser(outbox.dsn, "60s") as connection:
        with psycopg.connect(outbox.dsn) as audit:
            audit.execute("SELECT pg_advisory_xact_lock(hashtextextended('outbox.retention', 0))")
            erasing = pool.submit(Erasure(connection, [KEY]).run, 0)
            wait_until(lambda: query(outbox.dsn, WAITING) == [(1,)], "the erasure waits for its last step")
            for batch in (1, 2):
                outbox.batch(simple(BATCHES + batch, keys=1))
            query(
                outbox.dsn, "UPDATE outbox.batch SET open_state = %s WHERE batch_id = %s", STATE, BATCHES + 1
            )
        erasing.result()
    assert query(outbox.dsn, COUNT) == [(0,)]


def test_all_deliveries_are_read_before_the_writer_lock(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool, eraser(outbox.dsn, "60s") as connection:
        with psycopg.connect(outbox.dsn) as job:
            lock_once_it_has_begun(job, monkeypatch)
            erasing = pool.submit(Erasure(connection, [OF_ALL]).run, 0)
            wait_until(lambda: query(outbox.dsn, WAITING) == [(1,)], "the erasure waits for the lock")
            read_before = query(outbox.dsn, READ_BEFORE, "outbox.delivery")
        erasing.result()
    assert read_before != [(0,)]
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.session_output") == [(0,)]


def test_rows_and_letters_of_a_key_are_erased_in_steps(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    query(
        outbox.dsn,
        "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation,"
        " batch_id, session_key, detail, event_count, event_offsets, event_times_ms, event_values)"
        " SELECT %s, 't', 0, n, n, n, 'no_start', 1, 1, %s, '', 1, ARRAY[n], ARRAY[n], ARRAY[''::bytea] FROM generate_series(1, 250) n",
        TOPIC_ID,
        OF_ALL,
    )
    monkeypatch.setattr(erase, "_ROWS_AT_ONCE", 50)
    with eraser(outbox.dsn) as connection:
        erasure = Erasure(connection, [OF_ALL])
        erasure.run(0)
    found = erasure.keys[OF_ALL]
    assert (found.rows, found.letters, found.left) == (BATCHES, 250, [])
    steps = [
        result for (result,) in query(outbox.dsn, "SELECT result FROM outbox.operation ORDER BY operation_id")
    ]
    assert [each["rows"] for each in steps if "rows" in each] == [50, 50, 20]
    assert [each["letters"] for each in steps if "letters" in each] == [100, 100, 50]


def test_letters_without_a_key_are_read_before_the_writer_lock(outbox: Outbox) -> None:
    with ThreadPoolExecutor(1) as pool, eraser(outbox.dsn, "60s") as connection:
        with psycopg.connect(outbox.dsn) as job:
            job.execute("SELECT outbox.lock_writer()")
            erasing = pool.submit(connection.execute, "SELECT * FROM outbox.erase_letter_at('t', 0, 1)")
            wait_until(lambda: query(outbox.dsn, WAITING) == [(1,)], "the erasure waits for the lock")
            read_before = query(outbox.dsn, READ_BEFORE, "outbox.dead_letter")
        assert erasing.result().fetchone() == (0, 0)
    assert read_before != [(0,)]
