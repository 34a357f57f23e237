"""outbox.event shows each output event under the id its consumers see, and where it stands."""

import uuid
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.outbox.valid_rows import OutboxRows

COMMIT = uuid.UUID(int=7)


@pytest.fixture
def ledger(outbox: OutboxRows) -> OutboxRows:
    """Batches 1 to 3 of one generation, two lanes."""
    outbox.insert("generation")
    for batch in (1, 2, 3):
        outbox.insert("batch", batch_id=batch, spark_batch=batch - 1)
    outbox.insert("lane_epoch", lanes=2)
    return outbox


def several_sessions(**changes: Any) -> dict[str, Any]:
    """A row of three sessions of one key: with two outputs, none, and one."""
    return {
        "session_topic_ids": ["topicA", "topicA", "topicB"],
        "session_partitions": [4, 4, 0],
        "session_starts": [10, 20, 5],
        "session_ends": [19, 29, 9],
        "session_started_ms": [1_000, 2_000, 3_000],
        "session_ended_ms": [1_500, 2_500, 3_500],
        "session_events": [10, 10, 5],
        "session_outputs": [2, 0, 1],
        "topics": ["out", "audit", "out"],
        "values": [b"{}", b"{}", b"{}"],
    } | changes


@pytest.mark.guarantee(50, 129)
def test_ids_count_from_zero_within_each_session(ledger: OutboxRows) -> None:
    ledger.insert("session_output", **several_sessions())
    found = ledger.rows(
        """SELECT outbox_id, topic, session_start_offset, session_end_offset, input_topic_id, input_partition,
                  extract(epoch FROM session_started_at)::float, extract(epoch FROM session_ended_at)::float
           FROM outbox.event"""
    )
    assert found == [
        ("topicA/4/19/0", "out", 10, 19, "topicA", 4, 1.0, 1.5),
        ("topicA/4/19/1", "audit", 10, 19, "topicA", 4, 1.0, 1.5),
        ("topicB/0/9/0", "out", 5, 9, "topicB", 0, 3.0, 3.5),
    ]


def test_a_row_without_outputs_shows_no_event(ledger: OutboxRows) -> None:
    ledger.insert("session_output", session_outputs=[0], topics=[], values=[])
    assert ledger.rows("SELECT * FROM outbox.event") == []
    assert ledger.value("SELECT count(*) FROM outbox.session_output") == 1


@pytest.mark.guarantee(129)
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"name": "caf\xc3\xa9", "n": 1}', {"name": "café", "n": 1}),
        ('"日本 \U0001f600"'.encode(), "日本 \U0001f600"),
        (b"12.50", 12.5),
        (b"[true, false]", [True, False]),
        (None, None),
        (b"", None),
        (b"plain text", None),
        (b"\x00\x01\xff\xfe", None),
        (b'"caf\xe9"', None),
        (b'"\\u0000"', None),
        (b'"\xed\xa0\x80"', None),
        (b'"\\ud800"', None),
        (b"1e999999", None),
        (b'{"open": 1', None),
        (b"\\x7b7d", None),
        (b"[" * 100_000, None),
        (b"[" * 100_000 + b"]" * 100_000, None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_values_are_shown_as_they_are_and_as_json_where_they_are_json(
    ledger: OutboxRows, value: bytes | None, shown: Any
) -> None:
    ledger.insert("session_output", session_outputs=[1], topics=["out"], values=[value])
    assert ledger.rows("SELECT value, value_json FROM outbox.event") == [(value, shown)]


def test_json_null_is_json_and_a_tombstone_is_not(ledger: OutboxRows) -> None:
    ledger.insert("session_output", values=[b"null", None])
    assert ledger.rows("SELECT jsonb_typeof(value_json), value IS NULL FROM outbox.event") == [
        ("null", False),
        (None, True),
    ]


def test_what_an_event_leaves_open_is_shown_as_sent(ledger: OutboxRows) -> None:
    ledger.insert("session_output", session_key="kéy")
    row = ledger.rows("SELECT key, headers, target_partition, event_timestamp FROM outbox.event LIMIT 1")
    assert row == [("kéy".encode(), None, None, None)]


def test_keys_headers_partitions_and_times_belong_to_their_event(ledger: OutboxRows) -> None:
    headers = [["content-type", "text/plain"], ["raw", {"base64": "AP8="}], ["empty", None]]
    ledger.insert(
        "session_output",
        keys=[b"\xff\x00", None],
        headers=[None, Jsonb(headers)],
        partitions=[None, 3],
        timestamps_ms=[1_234, None],
    )
    found = ledger.rows(
        "SELECT key, headers, target_partition, extract(epoch FROM event_timestamp)::float FROM outbox.event"
    )
    assert found == [(b"\xff\x00", None, None, 1.234), (b"key", headers, 3, None)]


def states(ledger: OutboxRows) -> list[tuple[int, str, str]]:
    """What the view says of each row."""
    return [
        (batch, key, state)
        for batch, key, state in ledger.rows(
            "SELECT DISTINCT batch_id, session_key, delivery_state FROM outbox.event ORDER BY 1, 2"
        )
    ]


def test_everything_is_pending_before_the_first_delivery(ledger: OutboxRows) -> None:
    ledger.insert("session_output")
    assert states(ledger) == [(1, "key", "pending")]
    ledger.insert("lane")
    assert states(ledger) == [(1, "key", "pending")]


@pytest.mark.guarantee(129)
def test_the_cursor_divides_delivered_from_pending(ledger: OutboxRows) -> None:
    for batch in (1, 2, 3):
        for key in ("a", "b", "é"):
            ledger.insert("session_output", batch_id=batch, session_key=key)
    ledger.insert("session_output", batch_id=1, session_key="other lane", lane=1)
    ledger.insert("lane", cursor_batch=2, cursor_key="b", cursor_commit_id=COMMIT)
    assert states(ledger) == [
        (1, "a", "delivered"),
        (1, "b", "delivered"),
        (1, "other lane", "pending"),
        (1, "é", "delivered"),
        (2, "a", "delivered"),
        (2, "b", "delivered"),
        (2, "é", "pending"),
        (3, "a", "pending"),
        (3, "b", "pending"),
        (3, "é", "pending"),
    ]
    ledger.connection.execute("UPDATE outbox.lane SET cursor_key = NULL")
    assert (2, "é", "delivered") in states(ledger)
    assert (3, "a", "pending") in states(ledger)


def test_the_cursor_is_that_of_the_epoch_of_the_batch(ledger: OutboxRows) -> None:
    ledger.insert("lane_epoch", epoch=2, from_batch=3, lanes=1)
    ledger.insert("lane", epoch=1, cursor_batch=2, cursor_commit_id=COMMIT)
    ledger.insert("lane", epoch=2)
    for batch in (1, 2, 3):
        ledger.insert("session_output", batch_id=batch)
    assert [state for _, _, state in states(ledger)] == ["delivered", "delivered", "pending"]


@pytest.mark.guarantee(129)
def test_parked_rows_say_so_though_the_cursor_is_past_them(ledger: OutboxRows) -> None:
    ledger.insert("lane", cursor_batch=3, cursor_commit_id=COMMIT)
    for key in ("discarded", "parked", "requeued", "sent"):
        ledger.insert("session_output", session_key=key)
    ledger.insert("parked", session_key="parked")
    ledger.insert("parked", session_key="discarded", state="discarded")
    ledger.insert("parked", session_key="requeued", state="requeued", requeued_batch=2)
    assert states(ledger) == [
        (1, "discarded", "discarded"),
        (1, "parked", "parked"),
        (1, "requeued", "requeued"),
        (1, "sent", "delivered"),
    ]


def test_a_parallel_plan_can_show_json(ledger: OutboxRows) -> None:
    """Postgres 15 and 16 fail on an exception block in a parallel plan, so the function must keep such plans away."""
    assert (
        ledger.value("SELECT proparallel FROM pg_proc WHERE oid = 'outbox.try_json(bytea)'::regprocedure")
        == "u"
    )
    ledger.insert("session_output", values=[b"no json", b"{}"])
    with ledger.connection.transaction():
        renamed = ledger.connection.info.server_version >= 160000
        setting = "debug_parallel_query" if renamed else "force_parallel_mode"
        ledger.connection.execute("SELECT set_config(%s, 'on', true)", [setting])
        assert ledger.rows("SELECT value_json FROM outbox.event") == [(None,), ({},)]


def test_a_batch_is_looked_up_without_reading_the_others(ledger: OutboxRows) -> None:
    ledger.insert("session_output")
    ledger.connection.execute("SELECT outbox.ensure_partitions(20000, 60000)")
    explained = ledger.rows("EXPLAIN SELECT * FROM outbox.event WHERE batch_id = 1")
    text = "\n".join(line for (line,) in explained)
    assert "session_output_p00000000" in text
    assert "session_output_p00000001" not in text
