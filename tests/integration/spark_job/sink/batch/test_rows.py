"""Rows and letters: how the sessions of a key share rows, what breaks the contract, and who is told of the commit."""

from typing import Any

import psycopg
import pytest

from contract.session_keys import lane_hash
from db.connection import Connection
from spark_job import OutputEvent
from spark_job.dead_letters.store import REASONS
from spark_job.input.offsets import Offsets
from spark_job.sink import commit
from spark_job.sink.copy_rows import copy_rows
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, letter, session, still_open
from tests.support.sink.written import nothing_is_written, of_batch, one

E = OutputEvent


@pytest.mark.guarantee(2)
def test_all_sessions_of_a_key_in_a_batch_share_a_row(sink_run: SinkRun, connection: Connection) -> None:
    """In closing order: nothing is lost to the unique constraint."""
    sink_run.write(
        0,
        session("k", 0, 5, [E("t", b"1")]),
        session("k", 6, 9, [E("t", b"2"), E("t", b"3")]),
        session("k", 0, 2, [], source=1),
    )
    row = one(
        connection,
        'SELECT "values", session_ends, session_outputs, session_partitions FROM outbox.session_output',
    )
    assert row == ([b"1", b"2", b"3"], [5, 9, 2], [1, 2, 0], [0, 0, 1])


def test_a_key_that_overfills_a_row_takes_several_batches_of_one_transaction(
    sink_run: SinkRun, connection: Connection
) -> None:
    big = [E("t", b"x" * 900)]
    rows = (session("k", 0, 5, big), session("k", 6, 9, big), session("other", 10, 19, big))
    sink = sink_run.new_sink(max_row_bytes=1_000)
    committed = sink_run.write(
        0, *rows, letter("l", 1, 2, "timed_out"), still_open(0, 20, events=9), sink=sink
    )
    assert committed is not None
    assert (committed.batch_id, committed.sessions) == (2, 3)
    assert connection.execute(
        "SELECT batch_id, part, sessions, input_events, dead_letters, end_offsets->%s->>'0' FROM outbox.batch ORDER BY 1",
        [TOPIC_ID],
    ).fetchall() == [(1, 0, 2, 9, 1, "100"), (2, 1, 1, 0, 0, "100")]
    assert of_batch(connection, 1) == of_batch(connection, 2)
    sink_run.write(1, session("k", 100, 105, big), sink=sink)
    assert one(connection, "SELECT max(batch_id) FROM outbox.batch") == 3


def test_a_second_row_of_a_key_in_a_batch_is_refused(
    sink_run: SinkRun, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(*arguments: Any) -> range:
        copy_rows(*arguments)
        return copy_rows(*arguments)

    monkeypatch.setattr(commit, "copy_rows", twice)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    assert caught.value.diag.constraint_name == "session_output_p00000000_key"
    assert nothing_is_written(connection)


@pytest.mark.guarantee(56)
def test_a_row_that_breaks_the_contract_takes_the_whole_batch_with_it(
    sink_run: SinkRun, connection: Connection
) -> None:
    wrong = session("k", 0, 5, [E("t", b"v")]) | {"session_key": "x" * 1_025}
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        sink_run.write(0, session("a", 6, 9, [E("t", b"v")]), wrong, letter("b", 1, 2, "timed_out"))
    assert caught.value.diag.constraint_name == "session_output_key_bounds"
    assert nothing_is_written(connection)
    assert sink_run.write(0, session("a", 6, 9, [E("t", b"v")])) is not None


@pytest.mark.guarantee(61)
def test_letters_of_every_reason_keep_the_exact_bytes_and_are_written_once(
    sink_run: SinkRun, connection: Connection
) -> None:
    letters = [
        letter(f"k{n}", 10 * n, 10 * n + 5, reason, [b"a", None, b""]) for n, reason in enumerate(REASONS)
    ]
    nobodys = letter(None, 70, 70, "malformed", [b"\xff\x00"])
    committed = sink_run.write(0, *letters, nobodys)
    assert committed is not None
    assert committed.dead_letters == len(REASONS) + 1
    again = sink_run.write(1, *letters, nobodys)
    assert again is not None
    assert again.dead_letters == 0
    rows = connection.execute(
        "SELECT session_key, reason, event_values, event_offsets, event_times_ms, closing_offset, topic, batch_id, state"
        " FROM outbox.dead_letter ORDER BY first_offset"
    ).fetchall()
    assert rows == [
        *(
            (f"k{n}", reason, [b"a", None, b""], [10 * n, 10 * n + 1, 10 * n + 2], [1_000 + 10 * n + i for i in range(3)],
             10 * n + 5, "input", 1, "open")
            for n, reason in enumerate(REASONS)
        ),
        (None, "malformed", [b"\xff\x00"], [70], [1_070], 70, "input", 1, "open"),
    ]  # fmt: skip


@pytest.mark.guarantee(94)
def test_a_partitions_first_slice_after_an_upgrade_writes_only_the_letters_that_the_old_version_has_not(
    sink_run: SinkRun, connection: Connection
) -> None:
    """The old version judged silence bucket by bucket: it may have written a letter already, or have seen the session continue and end."""
    sink_run.write(
        0,
        session("went-on", 10, 90, [E("t", b"v")]),
        letter("there", 30, 40, "timed_out"),
        letter("longer", 20, 45, "restarted", [b"x", b"y", b"z"]),
        letter("there", 30, 40, "timed_out") | {"source": 1},
    )
    after = SinkRun(connection, Offsets({P0: 100, P1: 50}), reason="upgrade")
    after.plan(0, (100, 50), (200, 50))
    after.plan(1, (200, 50), (300, 90))
    missing = [
        letter("went-on", 10, 60, "timed_out"),
        letter("there", 30, 40, "timed_out"),
        letter("longer", 22, 60, "timed_out"),
    ]
    new = [
        letter("silent", 50, 80, "timed_out"),
        letter("went-on", 95, 150, "timed_out"),
        letter("there", 110, 120, "no_start"),
    ]
    committed = after.write(0, *missing, *new)
    assert committed is not None
    assert committed.dead_letters == len(new)
    written = (
        "SELECT session_key, first_offset FROM outbox.dead_letter WHERE batch_id = 2 ORDER BY first_offset"
    )
    assert connection.execute(written).fetchall() == [("silent", 50), ("went-on", 95), ("there", 110)]
    # A partition that had no records until now.
    quiet = {"source": 1}
    committed = after.write(
        1, letter("there", 30, 40, "timed_out") | quiet, letter("silent", 31, 40, "timed_out") | quiet
    )
    assert committed is not None
    assert committed.dead_letters == 1


def test_the_publisher_is_woken_by_the_commit(sink_run: SinkRun, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("LISTEN outbox_batch")
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
        (notification,) = listener.notifies(timeout=10, stop_after=1)
        assert notification.payload == f"1 {lane_hash(b'a') % 4}"


@pytest.mark.guarantee(103)
def test_the_lane_follows_the_current_epoch(sink_run: SinkRun, connection: Connection) -> None:
    sink_run.write(0, *[session(f"k{n}", n, n, [], source=0) for n in range(40)])
    assert one(connection, "SELECT array_agg(DISTINCT lane ORDER BY lane) FROM outbox.session_output") == [
        0,
        1,
        2,
        3,
    ]
