"""audit_service and audit_input: who is at work, and how far the input is dealt with."""

from psycopg.types.json import Jsonb

from tests.support.outbox.audited import minutes, offsets
from tests.support.outbox.valid_rows import OutboxRows

STATES = "SELECT service, state, pid, detail FROM outbox.audit_service ORDER BY service DESC, pid"


def test_where_nobody_works_each_service_says_so(outbox: OutboxRows) -> None:
    assert outbox.rows(STATES) == [("spark-job", "none", None, None), ("publisher", "none", None, None)]


def test_who_works_and_who_was_killed_is_told_apart(outbox: OutboxRows) -> None:
    ((backend,),) = outbox.rows("SELECT pg_backend_pid()")
    write = """UPDATE outbox.writer SET run_id = gen_random_uuid(), host = 'here', pid = 1, backend_pid = %s, heartbeat_at = now(),
               started_at = now(), held_back_since = now(), held_back_because = 'too much waits'"""
    outbox.connection.execute(write, [backend])
    begin = """INSERT INTO outbox.publisher_process (process_id, host, pid, alive_until, backend_pid, ended_at)
               VALUES (gen_random_uuid(), 'here', %s, now() + %s * interval '1 second', %s, %s)"""
    outbox.connection.execute(begin, [2, 10, backend, None])
    outbox.connection.execute(begin, [3, 10, 999_999, None])
    outbox.connection.execute(begin, [4, -10, backend, None])
    outbox.connection.execute(begin, [5, -10, 999_999, minutes(0)])
    outbox.connection.execute(begin, [6, -2 * 86_400, 999_999, None])
    assert outbox.rows(STATES) == [
        ("spark-job", "running", 1, "held back: too much waits"),
        ("publisher", "running", 2, None),
        ("publisher", "gone", 3, None),
        ("publisher", "gone", 4, None),
    ]
    outbox.connection.execute("UPDATE outbox.writer SET backend_pid = 999999")
    assert outbox.rows(STATES)[0][:2] == ("spark-job", "gone")


def test_a_publisher_that_leaves_its_lanes_to_others_is_not_taken_for_a_killed_one(
    outbox: OutboxRows,
) -> None:
    """By its own heartbeat, which ended its time at once: the clock may have been set back since, or forward."""
    ((backend,),) = outbox.rows("SELECT pg_backend_pid()")
    begin = """INSERT INTO outbox.publisher_process (process_id, host, pid, heartbeat_at, alive_until, backend_pid)
               SELECT gen_random_uuid(), 'here', %s, t, t, %s FROM (SELECT now() + %s * interval '1 second') n (t)"""
    for pid, backend_pid, seconds in (
        (1, backend, -2),
        (2, backend, 300),
        (3, backend, -300),
        (4, 999_999, -2),
    ):
        outbox.connection.execute(begin, [pid, backend_pid, seconds])
    found = [row for row in outbox.rows(STATES) if row[0] == "publisher"]
    assert [(pid, state) for _, state, pid, _ in found] == [
        (1, "withdrawn"),
        (2, "withdrawn"),
        (3, "withdrawn"),
        (4, "gone"),
    ]
    assert [(detail or "").split(":")[0] for *_, detail in found] == ["takes no lanes"] * 3 + [""]


def test_a_publisher_was_seen_when_it_last_beat_not_when_its_lease_ends(outbox: OutboxRows) -> None:
    begin = """INSERT INTO outbox.publisher_process (process_id, host, pid, heartbeat_at, alive_until, backend_pid)
               VALUES (gen_random_uuid(), 'here', %s, now() - %s * interval '1 second', now() + %s * interval '1 second', 999999)"""
    outbox.connection.execute(begin, [1, 7, 3])
    # A publisher of before 0007 wrote no heartbeat.
    outbox.connection.execute(begin, [2, None, -2])
    seen = "SELECT extract(epoch FROM now() - seen_at)::integer FROM outbox.audit_service WHERE service = 'publisher' ORDER BY pid"
    with outbox.connection.transaction():
        outbox.connection.execute(
            "UPDATE outbox.publisher_process SET heartbeat_at = now() - interval '7 s', alive_until = now() + interval '3 s' WHERE pid = 1"
        )
        outbox.connection.execute(
            "UPDATE outbox.publisher_process SET alive_until = now() - interval '2 s' WHERE pid = 2"
        )
        assert outbox.rows(seen) == [(7,), (2,)]


def test_each_partition_tells_how_far_it_is_read_and_since_when_something_is_open(
    audited_outbox: OutboxRows,
) -> None:
    newest = "SELECT topic, partition, read_to, open_from, newest_batch, committed_at FROM outbox.audit_input"
    assert audited_outbox.rows(newest) == [("session-events", 0, 400, None, 4, minutes(4))]

    audited_outbox.connection.execute(
        "UPDATE outbox.batch SET open_state = %s WHERE batch_id = 4", [opened(380)]
    )
    assert audited_outbox.rows(newest)[0][3] == 380

    # A partition with nothing but tombstones has no open session.
    audited_outbox.connection.execute(
        "UPDATE outbox.batch SET open_state = %s WHERE batch_id = 4", [opened(400)]
    )
    assert audited_outbox.rows(newest)[0][3] is None


def test_a_generation_that_has_committed_nothing_stands_at_its_start(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert(
        "generation",
        generation=2,
        start_offsets=offsets(3),
        open_state=opened(250),
        reason="savepoint",
        savepoint="before",
    )
    found = (
        "SELECT topic, partition, read_to, open_from, newest_batch, committed_at, age FROM outbox.audit_input"
    )
    assert audited_outbox.rows(found) == [("session-events", 0, 300, 250, None, None, None)]


def opened(safe: int) -> Jsonb:
    """What is open in the one partition."""
    return Jsonb(
        {"topic": {"0": {"safe": safe, "sessions": 1, "events": 2, "bytes": 30, "digest": "0" * 24}}}
    )
