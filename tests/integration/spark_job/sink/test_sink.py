"""The sink's transaction on a real Postgres: all of a batch or nothing of it, and only by the run that owns the outbox."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import TupleRow

from db.lanes import lane_hash
from service.errors import ContinuityError, FencedError, MovedError, SettingsError
from service.settings import JobSettings
from spark_job import OutputEvent
from spark_job.dead_letters.store import REASONS
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.monitoring import metrics
from spark_job.recovery import ownership
from spark_job.recovery.positions import position
from spark_job.recovery.positions.open_partitions import OpenPartition, OpenPartitions
from spark_job.sink import storing
from spark_job.sink.commit import BatchRange
from spark_job.spark.failures import passes_by_itself
from tests.support.outbox.sink_batches import P0, P1, TOPIC_ID, SinkRun, letter, session, still_open

Connection = psycopg.Connection[TupleRow]
E = OutputEvent


@pytest.fixture
def connection(as_writer: Callable[[], Connection]) -> Connection:
    """As the job connects: with the writer's privileges and no more."""
    return as_writer()


@pytest.fixture
def sink_run(connection: Connection) -> SinkRun:
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (100, 50))
    sink_run.plan(1, (100, 50), (200, 90))
    return sink_run


def one(connection: Connection, query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row and len(row) == 1 else row


def of_batch(connection: Connection, batch_id: int) -> tuple[Offsets, Offsets, OpenPartitions]:
    """Start, end and what is open, of a ledger row."""
    row = connection.execute(
        "SELECT start_offsets, end_offsets, open_state FROM outbox.batch WHERE batch_id = %s", [batch_id]
    ).fetchone()
    assert row is not None
    return Offsets.from_json(row[0]), Offsets.from_json(row[1]), OpenPartitions.from_json(row[2])


def nothing_is_written(connection: Connection, *, but_batches: int = 0) -> bool:
    counts = one(
        connection,
        "SELECT (SELECT count(*) FROM outbox.batch), (SELECT count(*) FROM outbox.session_output),"
        " (SELECT count(*) FROM outbox.dead_letter)",
    )
    return bool(counts == (but_batches, but_batches, 0))


def test_a_batch_is_stored_whole_and_byte_for_byte(sink_run: SinkRun, connection: Connection) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    outputs = [
        E("t.one", b"\x00\xff"),
        E("t.two", {"k": "ä"}, key="other", headers=[("h", "v")], partition=3, timestamp=moment),
        E("t.one", None),
    ]
    committed = sink_run.write(
        0, session("schlüssel", 5, 9, outputs), session("empty", 1, 2, []), still_open(0, events=7)
    )
    assert committed is not None
    assert (committed.batch_id, committed.sessions, committed.output_events) == (1, 2, 3)
    row = connection.execute(
        'SELECT session_key, revision, topics, "values", keys, headers, partitions, timestamps_ms, session_starts, session_ends, '
        "session_outputs, session_events, session_topic_ids FROM outbox.session_output ORDER BY session_key DESC"
    ).fetchall()
    assert row[0] == (
        "schlüssel", 0, ["t.one", "t.two", "t.one"], [b"\x00\xff", b'{"k":"\xc3\xa4"}', None], [None, b"other", None],
        [None, [["h", "v"]], None], [None, 3, None], [None, 1_767_323_045_000, None], [5], [9], [3], [5], [TOPIC_ID],
    )  # fmt: skip
    assert row[1] == ("empty", 0, [], [], None, None, None, None, [1], [2], [0], [2], [TOPIC_ID])
    batch = one(
        connection,
        "SELECT kind, input_events, sessions, output_events, spark_batch, part, generation, run_id FROM outbox.batch",
    )
    assert batch == ("stream", 7, 2, 3, 0, 0, 1, sink_run.run_id)


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"outbox_{name}_total", labels) or 0.0


def test_a_count_that_fails_after_the_commit_costs_only_itself(
    sink_run: SinkRun, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> None:
        raise ValueError("counters can only be incremented")

    monkeypatch.setattr(metrics, "committed", fails)
    assert sink_run.write(0, session("a", 0, 9, [E("t", b"v")])) is not None
    monkeypatch.undo()
    before = counted("batches"), counted("output_events")
    assert sink_run.write(1, session("a", 100, 109, [E("t", b"v")])) is not None
    assert (counted("batches") - before[0], counted("output_events") - before[1]) == (1, 1)


def test_what_the_job_stores_the_audit_finds_in_order(sink_run: SinkRun, connection: Connection) -> None:
    """Counts and bytes of the ledger are those of the rows, as the audit counts them: of values, whatever goes with them."""
    outputs = [
        E("t.one", b"\x00\xff"),
        E("t.two", {"k": "\u00e4"}, key="other", headers=[("h", "v")]),
        E("t.one", None),
    ]
    sink_run.write(0, session("a", 5, 9, outputs), session("empty", 1, 2, []), still_open(0, events=7))
    connection.execute("SET ROLE outbox_auditor")
    assert connection.execute("SELECT * FROM outbox.audit_reconciliation").fetchall() == []
    assert one(connection, "SELECT output_bytes FROM outbox.batch") == len(b"\x00\xff") + len(
        '{"k":"\u00e4"}'.encode()
    )


# Whose the outbox is


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


# Continuity


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


def test_a_topic_that_was_made_again_is_noticed_after_the_action_and_nothing_is_written(
    sink_run: SinkRun, connection: Connection
) -> None:
    """And before the writer lock is taken: Kafka may take its time."""

    def input_topics() -> InputTopics:
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        assert one(connection, locks) == 0
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        raise ContinuityError("the topic was made again")

    sink = sink_run.new_sink(input_topics=input_topics)
    with pytest.raises(ContinuityError, match="made again"):
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]), sink=sink)
    assert nothing_is_written(connection)


# The open state


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
                P0: OpenPartition(40, 2, 4, 20, "digest of [40, 60]"),
                P1: OpenPartition(20, 1, 2, 10, "digest of [20]"),
            }
        ),
    )
    sink_run.plan(1, (100, 50), (200, 50))
    sink_run.write(1, still_open(0))
    assert of_batch(connection, 2) == (
        Offsets({P0: 100, P1: 50}),
        Offsets({P0: 200, P1: 50}),
        OpenPartitions({P1: OpenPartition(20, 1, 2, 10, "digest of [20]")}),
    )


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


def test_tombstones_travel_on_the_ledger_row_and_hold_the_safe_offset_nowhere(
    sink_run: SinkRun, connection: Connection
) -> None:
    sink_run.write(0, still_open(0, tombstones=b"\x00too large"), still_open(1, 20))
    _, _, opened = of_batch(connection, 1)
    assert opened[P0] == OpenPartition(100, 0, 0, 0, "digest of []", b"\x00too large")
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


def test_a_partition_that_came_from_two_tasks_is_refused(sink_run: SinkRun, connection: Connection) -> None:
    with pytest.raises(SettingsError, match="minPartitions"):
        sink_run.write(0, still_open(0), still_open(0))
    assert nothing_is_written(connection)


# Rows and letters


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
    copy_rows = storing.copy_rows

    def twice(*arguments: Any) -> None:
        copy_rows(*arguments)
        copy_rows(*arguments)

    monkeypatch.setattr(storing, "copy_rows", twice)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        sink_run.write(0, session("a", 0, 9, [E("t", b"v")]))
    assert caught.value.diag.constraint_name == "session_output_p00000000_key"
    assert nothing_is_written(connection)


def test_a_row_that_breaks_the_contract_takes_the_whole_batch_with_it(
    sink_run: SinkRun, connection: Connection
) -> None:
    wrong = session("k", 0, 5, [E("t", b"v")]) | {"session_key": "x" * 1_025}
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        sink_run.write(0, session("a", 6, 9, [E("t", b"v")]), wrong, letter("b", 1, 2, "timed_out"))
    assert caught.value.diag.constraint_name == "session_output_key_bounds"
    assert nothing_is_written(connection)
    assert sink_run.write(0, session("a", 6, 9, [E("t", b"v")])) is not None


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


def test_the_lane_follows_the_current_epoch(sink_run: SinkRun, connection: Connection) -> None:
    sink_run.write(0, *[session(f"k{n}", n, n, [], source=0) for n in range(40)])
    assert one(connection, "SELECT array_agg(DISTINCT lane ORDER BY lane) FROM outbox.session_output") == [
        0,
        1,
        2,
        3,
    ]
