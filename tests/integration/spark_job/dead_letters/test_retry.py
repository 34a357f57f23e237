"""A retry on a real Postgres: kept events through the transform exactly once, whoever else writes meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import psycopg
import pytest

from contract.session_keys import lane_hash
from db.connection import Connection
from spark_job import OutputEvent
from spark_job.dead_letters import store
from spark_job.input.offsets import Offsets
from spark_job.ledger import ownership, position
from spark_job.outputs import transform
from spark_job.outputs.pgcopy import nullable
from tests.support.outbox import letters as kept_letters
from tests.support.outbox.letters import (
    HERE,
    WHOLE,
    events,
    failed,
    outputs,
    retry,
    states,
    unended,
    with_letters,
)
from tests.support.queries import query
from tests.support.sink.batches import P0, P1, SinkRun, letter, session, still_open
from tests.support.sink.written import one
from tests.support.waiting import wait_until

E = OutputEvent


def reasons(outcome: Any) -> dict[int, str]:
    return {refused.dead_letter_id: refused.because for refused in outcome.refused}


@pytest.mark.guarantee(62)
def test_a_retried_letter_is_resolved_by_a_batch_that_holds_its_outputs(
    connection: Connection, database: str
) -> None:
    sink_run = with_letters(connection, failed("a"))
    owner = ownership.read_owner(connection)
    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("LISTEN outbox_batch")
        outcome = retry(connection, database)
        assert [note.payload for note in listener.notifies(timeout=30, stop_after=1)] == [
            f"2 {lane_hash(b'a') % 4}"
        ]
    assert (len(outcome.retried), outcome.batches, outcome.refused, outcome.failed) == (1, [2], [], [])
    assert states(connection) == {"a": ("resolved", 2)}
    assert outputs(connection) == [(2, "a", 0, [10], [12], [1])]
    (value,) = one(connection, 'SELECT "values" FROM outbox.session_output')
    said = [["start_event", 0, 10], ["entry_event", 1, 11], ["end_event", 2, 12]]
    assert orjson.loads(value) == {"key": "a", "ends": 12, "events": said}
    ledger_row = one(
        connection,
        "SELECT kind, generation, spark_batch, part, start_offsets, end_offsets, open_state, input_events, sessions,"
        " output_events, output_bytes, dead_letters, transform_fingerprint FROM outbox.batch WHERE batch_id = 2",
    )
    size = len(value)
    fingerprint = transform.fingerprint(transform.load(f"{HERE}:good"))
    assert ledger_row == ("retry", 1, None, 0, *[None] * 3, 0, 1, 1, size, 0, fingerprint)
    # The running job notices nothing but that a number is taken.
    after = ownership.read_owner(connection)
    assert (after.run_id, after.backend_pid, after.started_at) == (
        owner.run_id,
        owner.backend_pid,
        owner.started_at,
    )
    newest = position.newest_row(connection, 1)
    assert newest is not None
    assert newest.batch_id == 1
    sink_run.plan(1, (100, 50), (200, 50))
    written = sink_run.write(1, session("b", 120, 130, [E("t", b"v")]))
    assert written is not None
    assert written.batch_id == 3


@pytest.mark.guarantee(62)
def test_a_retry_writes_the_row_that_the_sink_would_have_written(
    connection: Connection, database: str
) -> None:
    """One code for both: lane, arrays, order of a key's sessions."""
    with_letters(connection, failed("k", 10), failed("k", 20), failed("other", 30))
    retry(connection, database)
    columns = (
        "session_key, lane, revision, session_topic_ids, session_partitions, session_starts, session_ends, session_events, session_outputs,"
        ' topics, "values", keys, headers, partitions, timestamps_ms'
    )
    retried = connection.execute(f"SELECT {columns} FROM outbox.session_output ORDER BY 1").fetchall()  # noqa: S608
    again = SinkRun(connection, revision=1)
    again.plan(0, (0, 0), (100, 50))
    value = {"key": "k", "ends": 12, "events": [[kind, n, 10 + n] for n, kind in enumerate(WHOLE)]}
    moved = [[kind, n, 20 + n] for n, kind in enumerate(WHOLE)]
    last = [[kind, n, 30 + n] for n, kind in enumerate(WHOLE)]
    again.write(
        0,
        session("k", 10, 12, [E("t", value)]),
        session("k", 20, 22, [E("t", value | {"ends": 22, "events": moved})]),
        session("other", 30, 32, [E("t", {"key": "other", "ends": 32, "events": last})]),
    )
    written = connection.execute(
        f"SELECT {columns} FROM outbox.session_output WHERE revision = 1 ORDER BY 1"  # noqa: S608
    ).fetchall()
    assert [(*row[:2], 1, *row[3:]) for row in retried] == written
    assert [row[5] for row in written] == [[10, 20], [30]]


@pytest.mark.parametrize("reason", ["transform_failed", "malformed"])
def test_a_letter_that_cannot_be_read_keeps_no_other_from_being_retried(
    connection: Connection, database: str, reason: str
) -> None:
    with_letters(connection, failed("a", 10), failed("b", 20) | {"reason": reason}, failed("c", 30))
    query(database, "UPDATE outbox.dead_letter SET event_times_ms[2] = NULL WHERE session_key = 'b'")
    bad = one(connection, "SELECT dead_letter_id FROM outbox.dead_letter WHERE session_key = 'b'")
    outcome = retry(connection, database)
    assert [failure.dead_letter_id for failure in outcome.failed] == [bad]
    assert "Traceback" in outcome.failed[0].traceback
    assert {key: state for key, (state, _) in states(connection).items()} == {
        "a": "resolved",
        "b": "open",
        "c": "resolved",
    }


def test_a_part_whose_number_has_thousands_of_digits_is_refused_alone(
    connection: Connection, database: str
) -> None:
    forged = f"part {'1' * 4_400} of its session:" + "x" * 3_500
    with_letters(connection, failed("a", 10), failed("b", 20) | {"detail": forged})
    outcome = retry(connection, database)
    assert (len(outcome.retried), outcome.failed, outcome.refused) == (2, [], [])


def test_outputs_go_to_the_lanes_of_the_current_epoch(connection: Connection, database: str) -> None:
    with_letters(connection, *(failed(f"key-{n}", 10 * n) for n in range(9)))
    query(database, "INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (2, 2, 64)")
    retry(connection, database)
    assert one(connection, "SELECT max(lane) > 4 FROM outbox.session_output")


def test_a_letter_keeps_its_revision_and_a_batch_holds_one(connection: Connection, database: str) -> None:
    with_letters(connection, failed("a", 10), failed("both", 20))
    with_letters(connection, failed("b", 40), failed("both", 50), revision=3)
    outcome = retry(connection, database)
    assert outcome.batches == [3, 4]
    assert [row[:3] for row in outputs(connection)] == [
        (3, "a", 0),
        (3, "both", 0),
        (4, "b", 3),
        (4, "both", 3),
    ]


@pytest.mark.guarantee(63)
@pytest.mark.parametrize("closing", [99, 100])
def test_a_letter_that_the_stream_will_judge_again_is_refused(
    connection: Connection, database: str, closing: int
) -> None:
    """A restored savepoint reads it again and sends its outputs; a retry would send them twice."""
    with_letters(connection, failed("a", closing - 2), end=200)
    SinkRun(connection, Offsets({P0: 100, P1: 0}), revision=1)  # restored: no stream row yet
    outcome = retry(connection, database)
    if closing < 100:
        assert states(connection) == {"a": ("resolved", 2)}
    else:
        assert "about to read again (it has read up to 100)" in reasons(outcome)[1]
        assert states(connection) == {"a": ("open", None)}
        assert outputs(connection) == []


@pytest.mark.guarantee(63)
def test_what_was_read_is_the_end_of_the_newest_stream_batch_where_there_is_one(
    connection: Connection, database: str
) -> None:
    """During a reissue the end grows with the generation's batches; retries between them change nothing."""
    with_letters(connection, failed("a", 100), failed("b", 160), end=200)
    sink_run = SinkRun(connection, Offsets({P0: 50, P1: 0}), revision=1)
    sink_run.plan(0, (50, 0), (150, 50))
    sink_run.write(0, still_open(0))
    assert set(reasons(retry(connection, database))) == {2}
    assert set(reasons(retry(connection, database))) == {2}
    assert [state for state, _ in states(connection).values()] == ["resolved", "open"]


@pytest.mark.guarantee(64)
@pytest.mark.parametrize(
    ("row", "because"),
    [
        (letter(None, 10, 10, "malformed"), "a malformed record is no session"),
        (letter("k", 10, 10, "no_start", events("k", WHOLE[1:2])), "without its session's start"),
        (
            failed("k", types=WHOLE[:2]) | {"reason": "too_large", "events": 3},
            "only 2 of its 3 events are kept",
        ),
        (failed("k", types=WHOLE[:2]), "its end event is missing"),
        (failed("k", types=WHOLE[1:]), "its first kept event is 'entry_event'"),
        (failed("k", types=[*WHOLE, WHOLE[1]]), "its event at offset 12 is 'end_event' within a session"),
        (failed("k", types=[*WHOLE[:2], WHOLE[0]]), "its last event, at offset 12, is a second start"),
        (
            letter("k", 10, 11, "transform_failed", [*events("k")[:1], b"no JSON"]),
            "its event at offset 11 is malformed",
        ),
        (unended("k", 10, 90), "`--incomplete` transforms its events"),
        (unended("k", 10, 90, "restarted"), "`--incomplete` transforms its events"),
    ],
)
def test_what_is_no_session_is_refused_with_the_reason(
    connection: Connection, database: str, row: dict[str, Any], because: str
) -> None:
    with_letters(connection, row)
    outcome = retry(connection, database)
    assert because in reasons(outcome)[1]
    assert (outcome.retried, outputs(connection)) == ([], [])
    assert [state for state, _ in states(connection).values()] == ["open"]
    assert one(connection, "SELECT count(*) FROM outbox.batch") == 1


@pytest.mark.guarantee(64)
def test_sessions_without_an_end_are_retried_where_asked_and_end_at_their_last_event(
    connection: Connection, database: str
) -> None:
    with_letters(
        connection, unended("a", 10, 90), unended("b", 20, 30, "restarted", 3), failed("c", 40, WHOLE[:2])
    )
    outcome = retry(connection, database, incomplete=True)
    assert outputs(connection) == [(2, "a", 0, [10], [11], [1]), (2, "b", 0, [20], [22], [1])]
    assert reasons(outcome) == {2: "its end event is missing"}
    assert [
        row[0] for row in connection.execute("SELECT outbox_id FROM outbox.event ORDER BY outbox_id")
    ] == [
        f"{P0.topic_id}/0/11/0",
        f"{P0.topic_id}/0/22/0",
    ]


def test_a_transform_that_fails_again_leaves_its_letter_and_no_other(
    connection: Connection, database: str
) -> None:
    with_letters(connection, failed("bad", 10), failed("a", 20))
    outcome = retry(connection, database, function="moody")
    (failure,) = outcome.failed
    assert (failure.dead_letter_id, failure.error) == (1, "ValueError: still no luck with bad")
    assert "in moody" in failure.traceback
    assert states(connection) == {"bad": ("open", None), "a": ("resolved", 2)}


def test_a_dry_run_transforms_and_writes_nothing(connection: Connection, database: str) -> None:
    with_letters(connection, failed("bad", 10), failed("a", 20))
    outcome = retry(connection, database, function="moody", dry_run=True)
    assert ([one.letter.session_key for one in outcome.retried], len(outcome.failed)) == (["a"], 1)
    assert outcome.batches == []
    assert (outputs(connection), one(connection, "SELECT count(*) FROM outbox.batch")) == ([], 1)
    assert states(connection) == {"bad": ("open", None), "a": ("open", None)}


def test_types_that_only_headers_told_come_from_the_letter(connection: Connection, database: str) -> None:
    types = b"".join(nullable(kind.encode()) for kind in WHOLE)
    values = [orjson.dumps({"session_key": "a", "n": n}) for n in range(3)]
    row = letter("a", 10, 12, "transform_failed", values)
    with_letters(connection, row | {"types": types}, row | {"first_offset": 11, "session_key": "lost"})
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            """UPDATE outbox.generation SET assembly = '{"type": "header:kind", "topics": ["in"]}'"""
        )
    assert one(connection, "SELECT event_types FROM outbox.dead_letter WHERE dead_letter_id = 1") == list(
        WHOLE
    )
    outcome = retry(connection, database)
    assert states(connection)["a"] == ("resolved", 2)
    assert "schema 0001 did not keep" in reasons(outcome)[2]


def test_letters_without_header_types_have_none(connection: Connection) -> None:
    with_letters(connection, failed("a"))
    assert one(connection, "SELECT event_types IS NULL FROM outbox.dead_letter")


@pytest.mark.guarantee(62)
def test_two_retries_at_once_send_the_outputs_once(
    as_writer: Callable[[], Connection], connection: Connection, database: str
) -> None:
    """Both have transformed before either takes the writer lock."""
    with_letters(connection, *(failed(f"key-{n}", 10 * n) for n in range(5)))
    both = threading.Barrier(2, timeout=60)
    kept_letters.meanwhile[:] = [both.wait]
    try:
        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(retry, as_writer(), database, function="interrupted") for _ in range(2)]
            first, second = sorted(
                (call.result() for call in calls), key=lambda outcome: -len(outcome.retried)
            )
    finally:
        kept_letters.meanwhile.clear()
    assert (len(first.retried), len(second.retried)) == (5, 0)
    assert set(reasons(second).values()) == {"batch 2 has resolved it"}
    assert [row[:2] for row in outputs(connection)] == [(2, f"key-{n}") for n in range(5)]
    assert one(connection, "SELECT count(*) FROM outbox.batch") == 2


def restored(connection: Connection, *written: dict[str, Any]) -> SinkRun:
    """A savepoint at offset 10 is restored with policy reissue; its first batch wrote these rows, where there are any."""
    sink_run = SinkRun(connection, Offsets({P0: 10, P1: 0}), revision=1)
    sink_run.plan(0, (10, 0), (200, 50))
    if written:
        sink_run.write(0, *written)
    return sink_run


@pytest.mark.guarantee(63)
def test_a_retry_refuses_what_a_reissue_resolves_while_the_transform_runs(
    as_writer: Callable[[], Connection], connection: Connection, database: str
) -> None:
    """The last word is spoken under the writer lock."""
    with_letters(connection, failed("a"))
    kept_letters.meanwhile[:] = [lambda: restored(as_writer(), session("a", 10, 12, [E("t", b"mended")]))]
    try:
        outcome = retry(as_writer(), database, function="interrupted")
    finally:
        kept_letters.meanwhile.clear()
    assert reasons(outcome) == {1: "batch 2 has resolved it"}
    assert states(as_writer()) == {"a": ("resolved", 2)}
    assert outputs(as_writer()) == [(2, "a", 1, [10], [12], [1])]


@pytest.mark.guarantee(63)
def test_a_retry_refuses_what_is_to_be_read_again_since_the_transform_ran(
    as_writer: Callable[[], Connection], connection: Connection, database: str
) -> None:
    """The same for the position: the stream will send this letter's outputs itself."""
    with_letters(connection, failed("a"))
    kept_letters.meanwhile[:] = [lambda: restored(as_writer())]
    try:
        outcome = retry(as_writer(), database, function="interrupted")
    finally:
        kept_letters.meanwhile.clear()
    assert "about to read again (it has read up to 10)" in reasons(outcome)[1]
    assert states(as_writer()) == {"a": ("open", None)}
    assert outputs(as_writer()) == []


def test_a_reissue_after_a_retry_sends_its_own_revision_and_leaves_the_letter_as_it_is(
    connection: Connection, database: str
) -> None:
    with_letters(connection, failed("a"))
    retry(connection, database)
    restored(connection, session("a", 10, 12, [E("t", b"mended")]))
    assert outputs(connection) == [(2, "a", 0, [10], [12], [1]), (3, "a", 1, [10], [12], [1])]
    assert states(connection) == {"a": ("resolved", 2)}


def test_of_two_judgements_on_the_same_events_the_newer_is_retried_and_resolves_both(
    connection: Connection, database: str
) -> None:
    """A reissue resolves the older one by itself; versions before schema 0005 left it open."""
    with_letters(connection, failed("a"))
    with_letters(connection, failed("a"), revision=1)
    assert states(connection) == {"a": ("open", None)}
    connection.execute("UPDATE outbox.dead_letter SET state = 'open', resolved_batch = NULL")
    outcome = retry(connection, database)
    assert "letter 2 is a newer judgement" in reasons(outcome)[1]
    assert outcome.also_resolved == 1
    assert [(row[1], row[2]) for row in outputs(connection)] == [("a", 1)]
    rows = connection.execute("SELECT state, resolved_batch FROM outbox.dead_letter").fetchall()
    assert rows == [("resolved", 3)] * 2


def test_a_retry_waits_for_the_batch_that_is_being_written(
    as_writer: Callable[[], Connection], connection: Connection, database: str
) -> None:
    """The writer lock makes the two follow each other; without it both would take the same batch number."""
    with_letters(connection, failed("a"))
    with psycopg.connect(database, autocommit=True) as admin, ThreadPoolExecutor(1) as pool:
        with as_writer() as other, other.transaction():
            ownership.lock(other)
            call = pool.submit(retry, as_writer(), database)
            wait_until(
                lambda: (
                    admin.execute(
                        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                    ).fetchone()
                    is not None
                ),
                "a retry that waits for the writer lock",
            )
            other.execute(
                "INSERT INTO outbox.batch (batch_id, kind, generation, run_id, transform_fingerprint)"
                " VALUES (2, 'requeue', 1, gen_random_uuid(), '')"
            )
        assert call.result().batches == [3]


def test_the_current_position_knows_nothing_of_retries(connection: Connection, database: str) -> None:
    with_letters(connection, failed("a"))
    before = position.read(connection)
    retry(connection, database)
    assert position.read(connection) == before


@pytest.mark.guarantee(183)
def test_a_letter_that_is_erased_while_its_transform_runs_makes_no_output(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_letters(connection, failed("a"))

    def erase() -> None:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("SELECT outbox.erase_letters(ARRAY[1::bigint])")

    monkeypatch.setattr(kept_letters, "meanwhile", [erase])
    outcome = retry(connection, database, function="interrupted")
    assert reasons(outcome) == {1: "it no longer exists: retention removed it, or it was erased"}
    assert outputs(connection) == []


def test_events_that_postgres_has_compressed_count_as_large_as_they_are(connection: Connection) -> None:
    """A step of a retry would read a hundred times what it may."""
    blank = b" " * 1_000_000
    with_letters(connection, failed("a") | {"values": nullable(blank) * len(WHOLE)}, failed("b", 20))
    found = {each.dead_letter_id: each.bytes for each in store.to_retry(connection, store.Filter())}
    stored = one(
        connection, "SELECT pg_column_size(event_values) FROM outbox.dead_letter WHERE session_key = 'a'"
    )
    assert stored < 100_000
    assert found[1] == len(WHOLE) * len(blank)
    assert 100 < found[2] < 1_000
