"""What somebody with the login of `publisher erase` cannot do, and what the functions find, whatever the key is."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors, sql

from publisher.protocol.records import RowKey
from publisher.protocol.refusals import Refusal
from publisher.replay.refused_rows import explain_refused
from spark_job.sessions.clock import LastRecords, hashed_key
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import OpenState
from tests.support.outbox.batches import TOPIC_ID, Outbox, simple
from tests.support.outbox.old_outputs import add_batches, deliver_all
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.processes.erasing import appears, whole_dump
from tests.support.queries import query
from tests.support.reference.tombstones import tombstones

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


def test_of_a_key_that_it_guesses_it_learns_no_value_and_no_header(delivered: Outbox) -> None:
    with psycopg.connect(delivered.dsn, options=ERASER) as hostile:
        found = hostile.execute("SELECT * FROM outbox.rows_of_key('k0000', 1, 1)")
        learnt = [column.name for column in found.description or ()]
    assert learnt == ["batch_id", "sessions", "topics", "keys", "partitions", "is_delivered", "replays"]


def reason_of(dsn: str, key: str) -> str:
    """Have a replay say that it stopped at a row of the key; what it says."""
    said = explain_refused(1, RowKey(1, key), Refusal("too_large", "why"))
    query(
        dsn,
        "INSERT INTO outbox.replay (from_batch, to_batch, target_cluster_id, target_servers, rows_total, events_total, state, reason)"
        " VALUES (1, 7, 'c', 's', 1, 1, 'cancelled', %s)",
        said,
    )
    return said


@pytest.mark.parametrize("key", KEYS)
def test_the_reason_of_a_replay_forgets_a_key_however_it_is_spelled(database: str, key: str) -> None:
    said = reason_of(database, key)
    query(database, "SELECT outbox.erase_traces(%s)", key)
    ((reason,),) = query(database, "SELECT reason FROM outbox.replay")
    assert reason == said.replace(json.dumps(key, ensure_ascii=False), "(erased)")


def test_a_reason_keeps_the_key_that_has_an_erased_one_as_a_part(database: str) -> None:
    kept = [reason_of(database, key) for key in ("user-123", "a', for", "x session key 'b', for y", '"a')]
    for key in ("user-12", "a", "b", ""):
        query(database, "SELECT outbox.erase_traces(%s)", key)
    assert [
        reason for (reason,) in query(database, "SELECT reason FROM outbox.replay ORDER BY replay_id")
    ] == kept


@pytest.mark.guarantee(181)
def test_cursors_within_the_last_batch_of_a_lane_forget_a_key_whose_rows_retention_has_dropped(
    delivered: Outbox,
) -> None:
    dsn = delivered.dsn
    query(dsn, "INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (2, 2, 1)")
    query(
        dsn,
        "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, after_key, to_batch, to_key, sessions, events)"
        " VALUES (1, 0, 1, 0, NULL, 1, 'k0001', 1, 1), (1, 0, 2, 1, 'k0001', 1, NULL, 1, 1)",
    )
    query(dsn, "UPDATE outbox.lane SET seq = 2 WHERE lane = 0")
    add_batches(dsn, 10_000)
    query(
        dsn,
        "INSERT INTO outbox.lane (epoch, lane, cursor_batch, cursor_commit_id) SELECT 2, 0, 10000, gen_random_uuid()",
    )
    query(dsn, "SELECT outbox.drop_partition('session_output_p00000000')")
    ((_, kept),) = query(dsn, "SELECT t.changed, t.kept FROM outbox.erase_traces('k0001') t")
    assert kept == []
    assert not appears(whole_dump(dsn), b"k0001")
    assert query(dsn, "SELECT detail FROM outbox.check_delivery_chain") == []


ALPHABET = st.text(st.sampled_from("ab1-\x01\u00e9\U0001f5dd"), min_size=1, max_size=12)


@dataclass(frozen=True)
class Remembered:
    """What a position remembers, and the keys that it does. Earlier versions wrote the last record's key, too."""

    encoded: bytes
    keys: set[str]


@st.composite
def positions(draw: st.DrawFn) -> Remembered:
    """Tables of sessions that were too large or are in a later part, as the job encodes them."""
    keys = draw(st.lists(ALPHABET, min_size=1, max_size=20, unique=True))
    count = len(keys)
    empty = OpenSessions.empty()
    numbers = {
        field.name: np.array(
            draw(st.lists(st.integers(0, 2**50), min_size=count, max_size=count)), column.dtype
        )
        for field in fields(OpenSessions)
        if isinstance(column := getattr(empty, field.name), np.ndarray) and field.name != "irregular"
    }
    ids = draw(st.lists(st.none() | st.binary(max_size=20), min_size=count, max_size=count))
    repeated = draw(st.lists(st.integers(-1, 1) | st.integers(0, 2**50), min_size=count, max_size=count))
    part = draw(st.lists(st.just(1) | st.integers(2, 2**31), min_size=count, max_size=count))
    texts = {
        "key": pa.array(keys, pa.large_string()),
        "start_hash": pa.array([b"a" * 16 if each == 1 else None for each in part], pa.large_binary()),
        "start_id": pa.array(ids, pa.large_binary()),
    }
    start = np.sort(numbers["start"])
    others = {
        "start": start,
        "rows": np.arange(count),
        "repeated": np.array(repeated),
        "part": np.array(part),
        "irregular": np.ones(count, bool),
    }
    last = draw(
        st.none()
        | st.builds(
            LastRecords,
            key_hash=ALPHABET | ALPHABET.map(lambda key: hashed_key(key, 0)),
            offset=st.integers(0, 2**40),
            ts=st.integers(0, 2**40),
        )
    )
    state = OpenState.of(OpenSessions(**numbers | others | texts), last=last)
    return Remembered(
        state.remembered,
        {key for key in (*keys, *([] if last is None else [last.key_hash])) if "\0" not in key},
    )


@pytest.fixture(scope="module")
def remembering(module_outbox: OutboxRows) -> psycopg.Connection[Any]:
    return module_outbox.connection


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(positions(), st.data())
def test_a_position_remembers_whole_keys(
    remembering: psycopg.Connection[Any], position: Remembered, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(position.keys)))
    first, last = sorted((data.draw(st.integers(0, len(key))), data.draw(st.integers(0, len(key)))))
    for asked in {key, key[first:last], key + "a", data.draw(ALPHABET)} - {""}:
        found = remembering.execute(
            "SELECT outbox.remembers(%s, %s)", (position.encoded, asked.encode())
        ).fetchone()
        assert found == (asked in position.keys,), asked


def test_bytes_that_nobody_can_read_are_left_for_a_person(remembering: psycopg.Connection[Any]) -> None:
    for damaged in (b"\0\0person\0\0", b"\xff" * 8 + b"person", tombstones(person=5)[:-40]):
        found = remembering.execute("SELECT outbox.remembers(%s, %s)", (damaged, b"person")).fetchone()
        assert found == (True,)
        assert remembering.execute("SELECT outbox.remembers(%s, %s)", (damaged, b"nobody")).fetchone() == (
            False,
        )


@pytest.fixture
def eraser(outbox: OutboxRows) -> Iterator[psycopg.Connection[Any]]:
    """A connection with the rights of who erases and no more, to an outbox with letters."""
    outbox.insert_parents("dead_letter")
    for n, (key, state) in enumerate(
        ((None, "open"), (None, "discarded"), ("theirs", "open"), ("theirs", "discarded"))
    ):
        outbox.insert(
            "dead_letter",
            session_key=key,
            state=state,
            first_offset=n,
            last_offset=n,
            event_values=[b"secret", b"{}"],
            detail="secret",
        )
    with psycopg.connect(outbox.dsn, autocommit=True, options=ERASER) as connection:
        yield connection


def letters(outbox: OutboxRows) -> list[int]:
    return [offset for (offset,) in outbox.rows("SELECT first_offset FROM outbox.dead_letter ORDER BY 1")]


def test_what_a_letter_without_a_key_holds_cannot_be_found_out(eraser: psycopg.Connection[Any]) -> None:
    answers = {
        eraser.execute("SELECT l FROM outbox.letters_of_key(%s) l", (asked,)).fetchone()
        for asked in ("secret", "s", "other")
    }
    assert answers == {(("0", "2"),)}
    assert eraser.execute("SELECT outbox.erase_letters_of_key('secret')").fetchone() == (0,)


def test_letters_of_others_are_not_removed(outbox: OutboxRows, eraser: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        eraser.execute("SELECT outbox.erase_letters(ARRAY(SELECT generate_series(1, 100)))")
    answers = [
        eraser.execute(
            "SELECT e.erased, e.still_open FROM outbox.erase_letter_at('session-events', 0, %s) e", (n,)
        ).fetchone()
        for n in range(5)
    ]
    assert answers == [(0, 1), (1, 0), (0, 0), (0, 0), (0, 0)]
    assert letters(outbox) == [0, 2, 3], "what is open, and what has a key, stays"
    assert eraser.execute("SELECT outbox.erase_letters_of_key('theirs')").fetchone() == (2,)
    assert letters(outbox) == [0]


def test_keys_of_sessions_that_were_too_large_are_not_read(eraser: psycopg.Connection[Any]) -> None:
    for relation in (
        "batch",
        "generation",
        "savepoint",
        "erased",
        "dead_letter",
        "session_output",
        "replay",
        "parked",
        "delivery",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            eraser.execute(sql.SQL("SELECT FROM outbox.{}").format(sql.Identifier(relation)))


PARTITION = "session_output_p00000000"
ERASED_ROW: dict[str, Any] = {
    "session_key": "k0001",
    "batch_id": 1,
    "lane": 0,
    "revision": 0,
    "topic_ids": [TOPIC_ID],
    "partitions": [0],
    "ends": [100_001],
    "outputs": [1],
    "output_bytes": 1,
    "topics": ["out"],
    "was_parked": False,
}


def rewrite(dsn: str, **invented: Any) -> None:
    """Have the archive of the first partition say that a row of it is erased."""
    with psycopg.connect(dsn, autocommit=True, options=ERASER) as hostile:
        hostile.execute(
            "SELECT outbox.rewrite_archived(%s, sha256('old'), sha256('new'), %s)",
            (PARTITION, json.dumps([ERASED_ROW | invented])),
        )


@pytest.fixture
def in_archive(delivered: Outbox) -> str:
    """The first partition is in the archive, and the job has read the input up to offset 200,000; the DSN."""
    position = json.dumps({TOPIC_ID: {"0": 200_000}})
    query(delivered.dsn, "UPDATE outbox.batch SET start_offsets = %s, end_offsets = %s", position, position)
    query(
        delivered.dsn,
        "INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs,"
        " output_bytes) VALUES (%s, 0, 9999, gen_random_uuid(), sha256('old'), 3, 3, 9, 900)",
        PARTITION,
    )
    return delivered.dsn


@pytest.mark.parametrize(
    "invented",
    [{"batch_id": 10_000}, {"ends": [200_000]}, {"ends": [2**63 - 1]}],
    ids=["another batch", "not read yet", "for ever"],
)
def test_the_archive_forgets_no_session_that_it_cannot_have(
    in_archive: str, invented: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        rewrite(in_archive, **invented)
    assert query(in_archive, "SELECT count(*) FROM outbox.erased") == [(0,)]
    assert query(in_archive, "SELECT manifest_sha256 = sha256('old') FROM outbox.archived") == [(True,)]


@pytest.mark.parametrize(
    "honest",
    [{}, {"ends": [199_999]}, {"topic_ids": ["a topic of the past"], "ends": [10**9]}],
    ids=["below", "last", "no position is known"],
)
def test_a_rewritten_archive_is_in_the_operator_log_with_its_former_digest(
    in_archive: str, honest: dict[str, Any]
) -> None:
    query(in_archive, "DELETE FROM outbox.operation")
    rewrite(in_archive, **honest)
    assert query(in_archive, "SELECT count(*) FROM outbox.erased") == [(1,)]
    assert query(
        in_archive,
        "SELECT command, login = session_user, result ->> 'partition', result ->> 'rows',"
        " result ->> 'before' = encode(sha256('old'), 'hex'), result ->> 'after' = encode(sha256('new'), 'hex') FROM outbox.operation",
    ) == [("outbox.archived", True, PARTITION, "1", True, True)]


def test_a_place_that_the_job_has_never_read_is_not_kept_out_of_a_reissue(in_archive: str) -> None:
    rewrite(in_archive, topic_ids=["a topic to come"], ends=[2**63 - 1])
    assert query(in_archive, "SELECT count(*) FROM outbox.erased_key") == [(0,)]


def test_offsets_from_a_cut_on_are_kept_out_no_further_than_they_were_read_since(in_archive: str) -> None:
    query(
        in_archive,
        "INSERT INTO outbox.generation (generation, start_offsets, cut_offsets, topics, reason, policy, assembly, run_id, from_generation)"
        " VALUES (2, %s, %s, '{}', 'truncation', 'skip', '{}', gen_random_uuid(), 1)",
        json.dumps({TOPIC_ID: {"0": 500}}),
        json.dumps({TOPIC_ID: {"0": 500}}),
    )
    query(
        in_archive,
        "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
        " transform_fingerprint) VALUES (2, 'stream', 2, 0, gen_random_uuid(), '{}', %s, '{}', '')",
        json.dumps({TOPIC_ID: {"0": 600}}),
    )
    rewrite(in_archive, batch_id=2)
    assert query(in_archive, "SELECT through FROM outbox.erased_key") == [(599,)]


def test_an_archived_session_is_forgotten_after_an_older_position_was_restored(in_archive: str) -> None:
    """The next generation begins before the session's end, and is not there yet."""
    query(
        in_archive,
        "INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id, from_generation)"
        " VALUES (2, '{}', '{}', 'requested', 'reissue', '{}', gen_random_uuid(), 1)",
    )
    query(
        in_archive,
        "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
        " transform_fingerprint) VALUES (2, 'stream', 2, 0, gen_random_uuid(), '{}', %s, '{}', '')",
        json.dumps({TOPIC_ID: {"0": 5}}),
    )
    rewrite(in_archive)
    assert query(in_archive, "SELECT count(*) FROM outbox.erased") == [(1,)]
