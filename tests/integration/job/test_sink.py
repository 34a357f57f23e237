"""The sink's transaction on a real Postgres: all of a batch or nothing of it, and only by the run that owns the outbox."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.rows import TupleRow

from db.errors import ContinuityError, FencedError
from spark_job import OutputEvent, metrics
from spark_job.offsets import Offsets
from tests.integration.job.sink_world import P0, P1, TOPIC_ID, World, letter, session, summary

Connection = psycopg.Connection[TupleRow]
E = OutputEvent


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """As the job connects: with the writer's privileges and no more."""
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_writer") as connection:
        yield connection


@pytest.fixture
def world(connection: Connection) -> World:
    world = World(connection)
    world.plan(0, (0, 0), (100, 50))
    world.plan(1, (100, 50), (200, 90))
    return world


def one(connection: Connection, query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row and len(row) == 1 else row


def test_a_batch_is_stored_whole_and_byte_for_byte(world: World, connection: Connection) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    outputs = [
        E("t.one", b"\x00\xff"),
        E("t.two", {"k": "ä"}, key="other", headers=[("h", "v")], partition=3, timestamp=moment),
        E("t.one", None),
    ]
    committed = world.write(
        0, session("schlüssel", 5, 9, outputs), session("empty", 1, 2, []), summary(0, {}, events=7)
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
        "SELECT input_events, sessions, output_events, spark_batch, generation, length(content_hash) FROM outbox.batch",
    )
    assert batch == (7, 2, 3, 0, 1, 32)


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"outbox_{name}_total", labels) or 0.0


def recomputed(content: str) -> float:
    return counted("recomputed_batches", content=content)


def test_a_count_that_fails_after_the_commit_costs_only_itself(
    world: World, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> None:
        raise ValueError("counters can only be incremented")

    monkeypatch.setattr(metrics, "committed", fails)
    assert world.write(0, session("a", 0, 9, [E("t", b"v")])) is not None
    monkeypatch.undo()
    before = counted("batches"), counted("output_events")
    assert world.write(1, session("a", 100, 109, [E("t", b"v")])) is not None
    assert (counted("batches") - before[0], counted("output_events") - before[1]) == (1, 1)


def test_what_the_job_stores_the_audit_finds_in_order(world: World, connection: Connection) -> None:
    """Counts and bytes of the ledger are those of the rows, as the audit counts them: of values, whatever goes with them."""
    outputs = [
        E("t.one", b"\x00\xff"),
        E("t.two", {"k": "\u00e4"}, key="other", headers=[("h", "v")]),
        E("t.one", None),
    ]
    world.write(0, session("a", 5, 9, outputs), session("empty", 1, 2, []), summary(0, {}, events=7))
    connection.execute("SET ROLE outbox_auditor")
    assert connection.execute("SELECT * FROM outbox.audit_reconciliation").fetchall() == []
    assert one(connection, "SELECT output_bytes FROM outbox.batch") == len(b"\x00\xff") + len(
        '{"k":"\u00e4"}'.encode()
    )


def test_a_zombie_is_fenced_and_writes_nothing(world: World, connection: Connection, database: str) -> None:
    """⚠ design §3.3 step 1."""
    before = counted("takeovers")
    with psycopg.connect(database, autocommit=True) as other:
        successor = World(other)
        assert counted("takeovers") - before == 1
        with pytest.raises(FencedError, match=f"no longer owns the outbox, run {successor.run_id}"):
            # the takeover has ended the zombie's own backend; a zombie that reconnects is fenced all the same
            world.write(0, session("a", 0, 9, [E("t", b"v")]), sink=world.new_sink(other))
        assert one(other, "SELECT count(*) FROM outbox.session_output") == 0
        assert one(other, "SELECT count(*) FROM outbox.batch") == 0


def test_a_batch_that_spark_repeats_is_written_once(world: World, connection: Connection) -> None:
    """⚠ design §3.3 step 2: a crash between Postgres' commit and Spark's."""
    rows = (session("a", 0, 9, [E("t", b"v")]), summary(0, {}))
    world.write(0, *rows)
    before = counted("batches"), recomputed("same"), counted("recomputed_rows")
    assert world.write(0, *rows, sink=world.new_sink()) is None
    after = counted("batches"), recomputed("same"), counted("recomputed_rows")
    assert [new - old for old, new in zip(before, after, strict=True)] == [0, 1, 1]
    assert one(connection, "SELECT count(*) FROM outbox.session_output") == 1
    assert one(connection, "SELECT recomputed_at IS NOT NULL AND recomputed_hash IS NULL FROM outbox.batch")


def test_a_repeated_batch_with_other_content_keeps_the_first_and_records_the_difference(
    world: World, connection: Connection
) -> None:
    world.write(0, session("a", 0, 9, [E("t", b"first")]))
    before = recomputed("different")
    assert world.write(0, session("a", 0, 9, [E("t", b"second")])) is None
    assert recomputed("different") - before == 1
    assert one(connection, 'SELECT "values"[1] FROM outbox.session_output') == b"first"
    assert one(
        connection, "SELECT recomputed_hash IS NOT NULL AND recomputed_hash <> content_hash FROM outbox.batch"
    )


def test_a_batch_that_starts_elsewhere_than_the_ledger_ends_is_refused(
    world: World, connection: Connection
) -> None:
    """⚠ design §3.3 step 2: without it a foreign checkpoint would skip or repeat sessions."""
    world.write(0, session("a", 0, 9, [E("t", b"v")]))
    world.plan(1, (99, 50), (200, 90))
    with pytest.raises(ContinuityError, match=r"did not end: .*/0: 99 != 100"):
        world.write(1, session("b", 10, 19, [E("t", b"v")]))
    assert one(connection, "SELECT count(*) FROM outbox.batch") == 1
    assert one(connection, "SELECT count(*) FROM outbox.session_output") == 1


def test_a_repeated_batch_with_another_range_is_refused(world: World) -> None:
    world.write(0, session("a", 0, 9, [E("t", b"v")]))
    world.plan(0, (0, 0), (101, 50))
    with pytest.raises(ContinuityError, match=r"with another range: start same, end .*101 != 100"):
        world.write(0, session("a", 0, 9, [E("t", b"v")]))


@pytest.mark.parametrize(("written", "then"), [(0, 1), (1, 2), (2, 0)])
def test_a_gap_between_checkpoint_and_ledger_is_refused(
    world: World, connection: Connection, written: int, then: int
) -> None:
    ranges = [((0, 0), (100, 50)), ((100, 50), (200, 90)), ((200, 90), (300, 100)), ((300, 100), (400, 100))]
    for number, (start, end) in enumerate(ranges):
        world.plan(number, start, end)
    for number in range(written):
        world.write(number)
    with pytest.raises(ContinuityError, match="Nothing was written"):
        world.write(then if written != 1 else 3, session("x", 1, 2, [E("t", b"v")]))
    assert one(connection, "SELECT count(*) FROM outbox.session_output") == 0


def test_a_first_batch_that_does_not_start_where_its_generation_does_is_refused(world: World) -> None:
    world.plan(0, (1, 0), (100, 50))
    with pytest.raises(ContinuityError, match="must be 0 and start at"):
        world.write(0)


def test_outputs_and_orphans_below_the_high_water_are_dropped(connection: Connection) -> None:
    """⚠ design §3.3 step 3: an earlier generation has sent them."""
    world = World(connection, high_water=Offsets({P0: 50, P1: 0}))
    world.plan(0, (0, 0), (100, 50))
    committed = world.write(
        0,
        session("below", 10, 49, [E("t", b"v")]),
        session("at", 20, 50, [E("t", b"v")]),
        session("elsewhere", 0, 9, [E("t", b"v")], source=1),
        letter("orphan", 49, 49, "no_start"),
        letter("orphan-at", 50, 50, "no_start"),
        letter("late", 40, 45, "timed_out"),
    )
    assert committed is not None
    assert (committed.skipped, committed.dead_letters) == (2, 2)
    assert one(
        connection, "SELECT array_agg(session_key ORDER BY session_key) FROM outbox.session_output"
    ) == ["at", "elsewhere"]
    assert one(connection, "SELECT array_agg(session_key ORDER BY session_key) FROM outbox.dead_letter") == [
        "late",
        "orphan-at",
    ]
    done = one(connection, "SELECT done_offsets FROM outbox.batch")
    assert done == {TOPIC_ID: {"0": 100, "1": 50}}


def test_done_never_falls_below_the_high_water(connection: Connection) -> None:
    """⚠ design §3.4: with the batch's end instead, a second loss during the catch-up would repeat outputs."""
    world = World(connection, high_water=Offsets({P0: 500, P1: 3}))
    world.plan(0, (0, 0), (100, 50))
    world.write(0)
    assert one(connection, "SELECT done_offsets FROM outbox.batch") == {TOPIC_ID: {"0": 500, "1": 50}}


def test_a_letter_below_the_high_water_is_kept_unless_there_or_covered(
    world: World, connection: Connection
) -> None:
    world.write(0, session("covered", 10, 20, [E("t", b"v")]), letter("there", 30, 40, "timed_out"))
    again = World(connection, high_water=Offsets({P0: 100, P1: 50}))
    again.plan(0, (0, 0), (100, 50))
    committed = again.write(
        0,
        letter("covered", 12, 13, "restarted"),
        letter("there", 30, 40, "timed_out"),
        letter("new", 60, 70, "timed_out"),
    )
    assert committed is not None
    assert committed.dead_letters == 1
    assert one(connection, "SELECT array_agg(session_key ORDER BY session_key) FROM outbox.dead_letter") == [
        "new",
        "there",
    ]


def test_a_part_of_what_an_earlier_letter_covers_is_no_letter_of_its_own(
    world: World, connection: Connection
) -> None:
    """A new generation may begin inside a session that was dead-lettered long ago, at a repetition of its start."""
    world.write(0, letter("k", 5, 10, "restarted", [b"start", b"start again"]))
    again = World(connection, high_water=Offsets({P0: 100, P1: 50}))
    again.plan(0, (0, 0), (100, 50))
    committed = again.write(0, letter("k", 6, 10, "restarted", [b"start again"]))
    assert committed is not None
    assert committed.dead_letters == 0
    assert connection.execute("SELECT first_offset FROM outbox.dead_letter").fetchall() == [(5,)]


def test_safe_offsets_are_the_oldest_open_position_over_all_buckets(
    world: World, connection: Connection
) -> None:
    """⚠ design §3.1: a bucket without new data sends no summary, and its open sessions must not be forgotten."""
    world.write(0, summary(1, {0: 40}), summary(2, {0: 70, 1: 20}))
    world.write(1, summary(2, {}))
    safe = one(connection, "SELECT safe_offsets FROM outbox.batch WHERE batch_id = 2")
    assert safe == {TOPIC_ID: {"0": 40, "1": 90}}
    assert one(connection, "SELECT count(*) FROM outbox.bucket") == 2


def test_all_sessions_of_a_key_in_a_batch_share_a_row(world: World, connection: Connection) -> None:
    """⚠ design §3.3 step 4: nothing is lost to the unique constraint."""
    world.write(
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
    world: World, connection: Connection
) -> None:
    big = [E("t", b"x" * 900)]
    sink = world.new_sink(max_row_bytes=1_000)
    committed = world.write(
        0, session("k", 0, 5, big), session("k", 6, 9, big), session("other", 10, 19, big), sink=sink
    )
    assert committed is not None
    assert (committed.batch_id, committed.sessions) == (2, 3)
    assert connection.execute("SELECT batch_id, part, sessions FROM outbox.batch ORDER BY 1").fetchall() == [
        (1, 0, 2),
        (2, 1, 1),
    ]
    assert (
        world.write(
            0, session("k", 0, 5, big), session("k", 6, 9, big), session("other", 10, 19, big), sink=sink
        )
        is None
    )
    assert one(connection, "SELECT recomputed_hash IS NULL FROM outbox.batch WHERE part = 0")
    world.write(1, session("k", 100, 105, big), sink=sink)
    assert one(connection, "SELECT max(batch_id) FROM outbox.batch") == 3


def test_a_row_that_breaks_the_contract_takes_the_whole_batch_with_it(
    world: World, connection: Connection
) -> None:
    wrong = session("k", 0, 5, [E("t", b"v")]) | {"session_key": "x" * 1_025}
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        world.write(
            0, session("a", 6, 9, [E("t", b"v")]), wrong, letter("b", 1, 2, "timed_out"), summary(0, {0: 1})
        )
    assert caught.value.diag.constraint_name == "session_output_key_bounds"
    for table in ("session_output", "batch", "dead_letter", "bucket"):
        query = psycopg.sql.SQL("SELECT count(*) FROM outbox.{}").format(psycopg.sql.Identifier(table))
        assert connection.execute(query).fetchone() == (0,)
    assert world.write(0, session("a", 6, 9, [E("t", b"v")])) is not None


def test_a_dead_letter_keeps_the_exact_bytes(world: World, connection: Connection) -> None:
    world.write(
        0, letter(None, 7, 7, "malformed", [b"\xff\x00"]), letter("k", 8, 12, "timed_out", [b"a", None, b""])
    )
    rows = connection.execute(
        "SELECT session_key, event_values, event_offsets, event_times_ms, topic, batch_id FROM outbox.dead_letter ORDER BY first_offset"
    ).fetchall()
    assert rows == [
        (None, [b"\xff\x00"], [7], [1_007], "input", 1),
        ("k", [b"a", None, b""], [8, 9, 10], [1_008, 1_009, 1_010], "input", 1),
    ]


def test_the_publisher_is_woken_by_the_commit(world: World, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("LISTEN outbox_batch")
        world.write(0, session("a", 0, 9, [E("t", b"v")]))
        (notification,) = listener.notifies(timeout=10, stop_after=1)
        assert notification.payload == "1"


def test_the_lane_follows_the_current_epoch(world: World, connection: Connection) -> None:
    world.write(0, *[session(f"k{n}", n, n, [], source=0) for n in range(40)])
    assert one(connection, "SELECT array_agg(DISTINCT lane ORDER BY lane) FROM outbox.session_output") == [
        0,
        1,
        2,
        3,
    ]


def test_offsets_of_every_known_partition_are_named_even_idle_ones(
    world: World, connection: Connection
) -> None:
    world.plan(0, (0, 0), (100, 0))
    world.write(0)
    assert one(connection, "SELECT end_offsets FROM outbox.batch") == {TOPIC_ID: {"0": 100, "1": 0}}
    assert Offsets.from_json(one(connection, "SELECT safe_offsets FROM outbox.batch")) == Offsets(
        {P0: 100, P1: 0}
    )
