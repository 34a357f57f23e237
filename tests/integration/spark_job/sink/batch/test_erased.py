"""What was erased stays out when a reissue comes across its events again, and nothing else does."""

import psycopg
import pytest

from db.connection import Connection
from db.statements import queries
from publisher.erasure.erase import Erasure
from publisher.erasure.letters import letter_position
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets
from spark_job.ledger import position, savepoints
from spark_job.sink.erased import ErasedKeys
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, letter, session

ERASED = queries("spark_job", "erased")
KEY = "person-4711"
OUTPUT = [OutputEvent("t", b"secret")]


@pytest.fixture
def erased_run(sink_run: SinkRun, connection: Connection, database: str) -> SinkRun:
    """A batch with two sessions and a letter of a key, and a session of another one. All of the key is erased."""
    sink_run.write(
        0,
        session(KEY, 10, 20, OUTPUT),
        session(KEY, 30, 40, OUTPUT),
        session("other", 11, 21, OUTPUT),
        letter(KEY, 50, 50, "no_start"),
    )
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)"
            " SELECT 1, n, 1, b.batch_id, b.commit_id FROM generate_series(0, 3) n, outbox.batch b"
        )
        assert owner.execute("SELECT outbox.erase_rows(%s, ARRAY[1::bigint])", [KEY]).fetchone() == (1,)
        assert owner.execute(
            "SELECT outbox.erase_letters(ARRAY(SELECT dead_letter_id FROM outbox.dead_letter))"
        ).fetchone() == (1,)
    return sink_run


def keys_of(connection: Connection, revision: int) -> list[tuple[str, list[int]]]:
    """Session keys with the ends of their sessions."""
    return connection.execute(
        "SELECT session_key, session_ends FROM outbox.session_output WHERE revision = %s ORDER BY batch_id, session_key",
        [revision],
    ).fetchall()


def letters_of(connection: Connection) -> list[tuple[str | None, int]]:
    return connection.execute(
        "SELECT session_key, first_offset FROM outbox.dead_letter ORDER BY 2"
    ).fetchall()


@pytest.mark.guarantee(183)
def test_a_reissue_leaves_out_what_was_erased(erased_run: SinkRun, connection: Connection) -> None:
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    reissue.plan(0, (0, 0), (200, 50))
    committed = reissue.write(
        0,
        session(KEY, 10, 20, OUTPUT),
        session(KEY, 30, 40, OUTPUT),
        letter(KEY, 50, 50, "no_start"),
        session(KEY, 60, 70, OUTPUT),
        session("other", 11, 21, OUTPUT),
        letter(KEY, 71, 71, "no_start"),
        letter(None, 12, 12, "malformed"),
    )
    assert committed is not None
    assert (committed.sessions, committed.output_events, committed.dead_letters) == (2, 2, 2)
    assert keys_of(connection, 1) == [("other", [21]), (KEY, [70])]
    assert letters_of(connection) == [(None, 12), (KEY, 71)]
    assert connection.execute(
        "SELECT sessions, dead_letters FROM outbox.batch WHERE batch_id = 2"
    ).fetchone() == (2, 2)


@pytest.mark.guarantee(183)
@pytest.mark.parametrize(
    "again",
    [
        pytest.param(session(KEY, 10, 160, OUTPUT), id="longer, by other rules"),
        pytest.param(session(KEY, 15, 40, OUTPUT), id="shorter, by other rules"),
        pytest.param(letter(KEY, 35, 160, "timed_out"), id="a letter, by other rules"),
    ],
)
def test_events_that_were_erased_stay_out_by_whatever_rules_they_are_read_again(
    erased_run: SinkRun, connection: Connection, again: dict[str, object]
) -> None:
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    reissue.plan(0, (0, 0), (200, 50))
    reissue.write(0, again)
    assert keys_of(connection, 1) == []
    assert letters_of(connection) == []


def test_another_partition_of_the_key_was_not_erased(erased_run: SinkRun, connection: Connection) -> None:
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    reissue.plan(0, (0, 0), (200, 50))
    reissue.write(0, session(KEY, 10, 20, OUTPUT, source=1))
    assert keys_of(connection, 1) == [(KEY, [20])]


def test_after_a_truncation_the_same_offsets_are_other_events(
    erased_run: SinkRun, connection: Connection
) -> None:
    after = SinkRun(
        connection, Offsets({P0: 25, P1: 0}), revision=1, reason="truncation", cut=Offsets({P0: 25})
    )
    after.plan(0, (25, 0), (200, 50))
    after.write(0, session(KEY, 30, 40, OUTPUT))
    assert keys_of(connection, 1) == [(KEY, [40])]
    again = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=2, reason="savepoint")
    again.plan(0, (0, 0), (200, 50))
    again.write(0, session(KEY, 10, 20, OUTPUT), session(KEY, 30, 40, OUTPUT))
    assert keys_of(connection, 2) == [(KEY, [40])]


ARCHIVED = """
    SELECT outbox.rewrite_archived('session_output_p00000000', sha256('old'), sha256('new'), jsonb_agg(jsonb_build_object(
        'session_key', e.key, 'batch_id', e.batch_id, 'lane', 0, 'revision', 0, 'topic_ids', ARRAY[%(topic_id)s], 'partitions', ARRAY[0],
        'ends', ARRAY[40], 'outputs', ARRAY[1], 'output_bytes', 1, 'topics', ARRAY['t'], 'was_parked', false)))
    FROM unnest(%(keys)s::text[], %(batches)s::bigint[]) AS e (key, batch_id)"""
"""Erases a row of each of these batches, with a session that ended at offset 40, from the archive."""


@pytest.mark.guarantee(183)
def test_a_truncation_before_an_archived_row_was_written_does_not_bring_it_back_though_its_ledger_row_is_pruned(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    sink_run.write(0, session("before", 30, 40, OUTPUT))
    sink_run.plan(1, (100, 50), (150, 50))
    sink_run.write(1, session("other", 101, 102, OUTPUT))
    after = SinkRun(
        connection, Offsets({P0: 25, P1: 0}), revision=1, reason="truncation", cut=Offsets({P0: 25})
    )
    after.plan(0, (25, 0), (100, 50))
    after.write(0, session("after", 30, 40, OUTPUT))
    after.plan(1, (100, 50), (150, 50))
    after.write(1, session("other", 101, 102, OUTPUT))
    with psycopg.connect(database, autocommit=True) as owner:
        # As if retention had archived the rows and pruned the ledger, except each generation's newest stream row. Batch 5 was a requeue.
        owner.execute("DELETE FROM outbox.session_output")
        owner.execute("DELETE FROM outbox.batch WHERE batch_id IN (1, 3)")
        owner.execute(
            "INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs,"
            " output_bytes) VALUES ('session_output_p00000000', 0, 9999, gen_random_uuid(), sha256('old'), 5, 5, 5, 500)"
        )
        erased = {"topic_id": P0.topic_id, "keys": ["before", "after", "requeued"], "batches": [1, 3, 5]}
        assert owner.execute(ARCHIVED, erased).fetchone() == ([],)
    again = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=2, reason="savepoint")
    again.plan(0, (0, 0), (200, 50))
    again.write(
        0,
        session("before", 10, 20, OUTPUT),
        session("before", 30, 40, OUTPUT),
        session("after", 26, 40, OUTPUT),
        session("requeued", 26, 40, OUTPUT),
    )
    # After the truncation, offset 30 is another event of "before", which was never erased.
    assert keys_of(connection, 2) == [("before", [40])]


@pytest.fixture
def dropped_run(sink_run: SinkRun, connection: Connection, database: str) -> SinkRun:
    """Retention has dropped the outputs of a batch that read up to 100. Then the key is erased, and nothing is there of it."""
    sink_run.write(0, session(KEY, 10, 20, OUTPUT), session("other", 11, 21, OUTPUT))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DELETE FROM outbox.session_output")
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_eraser") as eraser:
        Erasure(eraser, [KEY]).run(0)
    return sink_run


def reissued(connection: Connection, *found: dict[str, object]) -> list[tuple[str, list[int]]]:
    """What a reissue from the beginning stores of these sessions."""
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    reissue.plan(0, (0, 0), (200, 50))
    reissue.write(0, *found)
    return keys_of(connection, 1)


@pytest.mark.guarantee(183)
def test_a_key_whose_outputs_retention_had_dropped_before_stays_out_and_its_later_sessions_do_not(
    dropped_run: SinkRun, connection: Connection
) -> None:
    assert reissued(
        connection,
        session(KEY, 10, 20, OUTPUT),
        session(KEY, 99, 110, OUTPUT),
        session(KEY, 100, 120, OUTPUT),
        session("other", 11, 21, OUTPUT),
    ) == [("other", [21]), (KEY, [120])]


@pytest.mark.guarantee(183)
def test_what_an_earlier_generation_read_of_a_key_stays_out_of_the_reissue_that_is_under_way(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    sink_run.write(0, session(KEY, 10, 20, OUTPUT))
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    reissue.plan(0, (0, 0), (5, 50))
    reissue.write(0, session("other", 1, 2, OUTPUT))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DELETE FROM outbox.session_output WHERE session_key = %s", [KEY])
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_eraser") as eraser:
        Erasure(eraser, [KEY]).run(0)
    reissue.plan(1, (5, 50), (200, 50))
    reissue.write(1, session(KEY, 10, 20, OUTPUT), session(KEY, 100, 110, OUTPUT))
    assert keys_of(connection, 1) == [("other", [2]), (KEY, [110])]


@pytest.mark.guarantee(183)
def test_a_savepoint_that_is_made_after_the_records_of_the_rows_are_pruned_brings_nothing_back(
    erased_run: SinkRun, connection: Connection, database: str
) -> None:
    """`savepoint create --at` names a position of before, and the start of a generation is never pruned."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "CREATE OR REPLACE FUNCTION outbox.retention_floor() RETURNS bigint LANGUAGE sql AS 'SELECT 2::bigint'"
        )
        assert owner.execute("SELECT outbox.prune_erased(0, 100)").fetchone() == (2,)
    with connection.transaction():
        made = savepoints.create(connection, "monday", Offsets({P0: 0, P1: 0}))
    assert made.end == Offsets({P0: 0, P1: 0})
    assert reissued(connection, session(KEY, 10, 20, OUTPUT), session("other", 11, 21, OUTPUT)) == [
        ("other", [21])
    ]


@pytest.mark.guarantee(183)
def test_a_letter_without_a_key_that_was_erased_stays_out_too(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    malformed = [letter(None, offset, offset, "malformed") for offset in (11, 12, 13)]
    sink_run.write(0, *malformed)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.dead_letter SET state = 'discarded'")
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_eraser") as eraser:
        Erasure(eraser, [], [letter_position("input/0/12")]).run(0)
    assert letters_of(connection) == [(None, 11), (None, 13)]
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    reissue.plan(0, (0, 0), (200, 50))
    reissue.write(0, *malformed)
    assert sorted(letters_of(connection)) == [(None, 11), (None, 11), (None, 13), (None, 13)]


def test_however_many_keys_were_erased_a_batch_past_them_costs_nothing(
    erased_run: SinkRun, connection: Connection, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO outbox.erased_key SELECT sha256(n::text::bytea), %s, n %% 2, 1, n %% 60 FROM generate_series(1, 50000) n",
            [TOPIC_ID],
        )
        owner.execute("VACUUM (ANALYZE) outbox.erased_key")
    safe = {"topic_ids": [TOPIC_ID] * 2, "partitions": [0, 1], "safe": [100, 100], "inputs": [TOPIC_ID]}
    places = {
        "key_hashes": [bytes([n] * 32) for n in range(10)],
        "topic_ids": [TOPIC_ID] * 10,
        "partitions": [0] * 10,
    }
    for asked, values in ((ERASED["reaching"], safe), (ERASED["of_places"], places)):
        row = connection.execute(
            b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + asked.encode(), values, prepare=False
        ).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 50
    assert connection.execute(ERASED["reaching"], safe).fetchone() == (False,)
    assert connection.execute(ERASED["reaching"], safe | {"safe": [100, 59]}).fetchone() == (True,)
    elsewhere = safe | {"safe": [100, 59], "inputs": ["a topic that was created again"]}
    assert connection.execute(ERASED["reaching"], elsewhere).fetchone() == (False,)


def test_a_stolen_login_for_erasure_names_no_session_that_the_job_has_not_read(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_eraser") as hostile:
        assert hostile.execute("SELECT outbox.begin_erasure(ARRAY[%s])", [KEY]).fetchone() == (0,)
        sink_run.write(0, session("other", 11, 21, OUTPUT))
        assert hostile.execute("SELECT outbox.begin_erasure(ARRAY[%s])", [KEY]).fetchone() == (2,)
        assert hostile.execute("SELECT outbox.begin_erasure(ARRAY[%s])", [KEY]).fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            hostile.execute("UPDATE outbox.erased_key SET through = through + 1")
    assert connection.execute("SELECT partition, through FROM outbox.erased_key ORDER BY 1").fetchall() == [
        (0, 99),
        (1, 49),
    ]


def test_once_a_reissue_is_past_it_nothing_is_asked_for(erased_run: SinkRun, connection: Connection) -> None:
    at = position.read(connection)
    assert at is not None
    assert ErasedKeys.read(connection, at) is None
    reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
    at = position.read(connection)
    assert at is not None
    assert ErasedKeys.read(connection, at) is not None
    reissue.plan(0, (0, 0), (200, 50))
    reissue.write(0, session("other", 60, 70, OUTPUT))
    at = position.read(connection)
    assert at is not None
    assert ErasedKeys.read(connection, at) is None
