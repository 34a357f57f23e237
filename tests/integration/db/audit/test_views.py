"""Each audit view answers its question."""

import uuid
from collections import Counter
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.support.outbox.audited import ledger_row, minutes, offsets, row
from tests.support.outbox.valid_rows import NO_OFFSETS, OutboxRows


def test_a_session_tells_where_it_came_from_and_when_it_went_out(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        """SELECT batch_id, topic, partition, start_offset, end_offset, input_events, output_events, batch_kind, state, delivered_at,
                  delivery_seq, lane
           FROM outbox.audit_session WHERE session_key = 'a' ORDER BY batch_id"""
    ) == [
        (1, "session-events", 0, 0, 9, 10, 2, "stream", "delivered", minutes(2.5), 1, 0),
        (2, "session-events", 0, 100, 109, 10, 2, "stream", "delivered", minutes(2.5), 1, 0),
        (3, "session-events", 0, 200, 209, 10, 2, "stream", "delivered", minutes(4.5), 2, 0),
        (4, "session-events", 0, 300, 309, 10, 2, "stream", "delivered", minutes(4.5), 2, 0),
    ]  # fmt: skip


def test_a_session_that_was_put_aside_or_waits_has_no_delivery(shared_audited_outbox: OutboxRows) -> None:
    found = shared_audited_outbox.rows(
        "SELECT batch_id, state, delivered_at FROM outbox.audit_session WHERE session_key = 'd' ORDER BY batch_id"
    )
    assert found == [
        (1, "delivered", minutes(3.5)),
        (2, "requeued", None),
        (3, "delivered", minutes(3.5)),
        (4, "pending", None),
        (5, "pending", None),
    ]


def test_what_a_resume_passed_over_was_skipped_and_not_delivered(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert("delivery", lane=1, seq=2, kind="resume", after_batch=3, to_batch=4, sessions=0, events=0, note="to batch 4",
                 committed_at=minutes(6))  # fmt: skip
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 4, seq = 2 WHERE lane = 1")
    state = "SELECT state, delivered_at FROM outbox.audit_session WHERE session_key = 'c' AND batch_id = 4"
    assert audited_outbox.rows(state) == [("skipped", None)]
    outputs = (
        "SELECT DISTINCT state FROM outbox.audit_session_output WHERE session_key = 'c' AND batch_id = 4"
    )
    assert audited_outbox.rows(outputs) == [("skipped",)]
    history = "SELECT at, what FROM outbox.audit_history WHERE session_key = 'c' AND batch_id = 4 ORDER BY at"
    assert audited_outbox.rows(history) == [(minutes(4), "closed"), (minutes(6), "skipped")]


def test_what_a_resume_led_back_to_is_sent_again_and_both_are_told(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert(
        "delivery",
        lane=0,
        seq=3,
        kind="resume",
        after_batch=4,
        to_batch=3,
        sessions=0,
        events=0,
        committed_at=minutes(7),
    )
    audited_outbox.insert(
        "delivery", lane=0, seq=4, after_batch=3, to_batch=4, sessions=2, events=4, committed_at=minutes(8)
    )
    sent = "SELECT sent_at FROM outbox.audit_sent WHERE session_key = 'a' AND batch_id = 4 AND topic = 'out' ORDER BY sent_at"
    assert audited_outbox.rows(sent) == [(minutes(4.5),), (minutes(8),)]
    first = "SELECT delivered_at FROM outbox.audit_session WHERE session_key = 'a' AND batch_id = 4"
    assert audited_outbox.rows(first) == [(minutes(4.5),)]


def test_each_output_tells_where_it_went(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        """SELECT outbox_id, topic, kafka_offsets, state, delivered_at, value_json
           FROM outbox.audit_session_output WHERE session_key = 'b' AND batch_id = 2 ORDER BY outbox_id"""
    ) == [
        ("topic/0/119/0", "out", {"0": [200, 204]}, "delivered", minutes(4.5), {"n": 1}),
        ("topic/0/119/1", "log", {"0": [0, 9], "1": [0, 9]}, "delivered", minutes(4.5), {}),
    ]  # fmt: skip


def test_the_lineage_leads_from_the_input_to_kafka(audited_outbox: OutboxRows) -> None:
    lineage = """SELECT input_topic_id, input_partition, first_offset, last_offset, batch_kind, generation, run_id IS NOT NULL,
                        transform_fingerprint, outbox_id, topic, state, lane, delivery_seq, kafka_offsets
                 FROM outbox.output_lineage WHERE session_key = 'b' AND batch_id = 2 ORDER BY outbox_id"""
    of_session = ("topic", 0, 110, 119, "stream", 1, True, "fingerprint")
    assert audited_outbox.rows(lineage) == [
        (*of_session, "topic/0/119/0", "out", "delivered", 0, 2, {"0": [200, 204]}),
        (*of_session, "topic/0/119/1", "log", "delivered", 0, 2, {"0": [0, 9], "1": [0, 9]}),
    ]
    # Several sessions of a key in a row: each output has its own.
    audited_outbox.connection.execute(
        """UPDATE outbox.session_output SET session_topic_ids = session_topic_ids || session_topic_ids,
               session_partitions = session_partitions || 0, session_starts = session_starts || 120::bigint,
               session_ends = session_ends || 125::bigint, session_started_ms = session_started_ms || session_started_ms,
               session_ended_ms = session_ended_ms || session_ended_ms, session_events = session_events || session_events,
               session_outputs = '{1,1}' WHERE session_key = 'b' AND batch_id = 2"""
    )
    places = "SELECT first_offset, outbox_id FROM outbox.output_lineage WHERE session_key = 'b' AND batch_id = 2 ORDER BY 1"
    assert audited_outbox.rows(places) == [(110, "topic/0/119/0"), (120, "topic/0/125/0")]


def test_the_lineage_has_one_row_for_each_output(shared_audited_outbox: OutboxRows) -> None:
    both = "SELECT (SELECT count(*) FROM outbox.output_lineage), (SELECT count(*) FROM outbox.audit_session_output)"
    ((lineage, outputs),) = shared_audited_outbox.rows(both)
    assert lineage == outputs == 34


def test_an_output_for_a_partition_of_its_own_shows_the_offsets_there(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute(
        "UPDATE outbox.session_output SET partitions = ARRAY[NULL, 1] WHERE session_key = 'b' AND batch_id = 2"
    )
    offsets = "SELECT kafka_offsets FROM outbox.{} WHERE session_key = 'b' AND batch_id = 2 AND topic = 'log'"
    for view in ("audit_session_output", "audit_sent"):
        assert audited_outbox.rows(offsets.format(view)) == [({"1": [0, 9]},)]
    audited_outbox.connection.execute("UPDATE outbox.delivery SET kafka_offsets = NULL")
    for view in ("audit_session_output", "audit_sent"):
        assert audited_outbox.rows(offsets.format(view)) == [(None,)]


def test_the_history_of_a_key_tells_everything_in_order(shared_audited_outbox: OutboxRows) -> None:
    history = "SELECT at, what, detail, batch_id FROM outbox.audit_history WHERE session_key = 'd' ORDER BY at, batch_id"
    assert [row[:2] + row[3:] for row in shared_audited_outbox.rows(history)] == [
        (minutes(1), "closed", 1),
        (minutes(2), "closed", 2),
        (minutes(3), "closed", 3),
        (minutes(3.25), "parked", 2),
        (minutes(3.5), "delivered", 1),
        (minutes(3.5), "delivered", 3),
        (minutes(4), "closed", 4),
        (minutes(5), "requeued", 2),
        (minutes(10), "replayed", 1),
    ]
    details = {(what, batch): detail for _, what, detail, batch in shared_audited_outbox.rows(history)}
    assert details["closed", 2] == "events topic/0/130 to 139, 10 in, 2 outputs"
    assert details["parked", 2] == "too_large: MSG_SIZE_TOO_LARGE"
    assert details["requeued", 2] == "goes out as batch 5"
    assert details["delivered", 1] == "2 outputs in delivery 1 of epoch 1, lane 1"
    assert details["replayed", 1].startswith("1 outputs by replay 1, between 2026-01-01 12:10:00")


def test_letters_are_part_of_the_history(shared_audited_outbox: OutboxRows) -> None:
    found = shared_audited_outbox.rows(
        "SELECT at, what, detail FROM outbox.audit_history WHERE session_key = 'a' AND what ~ 'letter' ORDER BY at"
    )
    assert [(at, what) for at, what, _ in found] == [
        (minutes(1), "dead-lettered"),
        (minutes(2), "letter resolved"),
    ]
    assert "restarted, letter 2, 2 events session-events/0/5 to 6: no end within 60 s" in found[0][2]
    assert found[1][2] == "letter 2, by batch 2"


def test_of_a_traceback_the_history_shows_the_line_that_says_what_went_wrong(
    audited_outbox: OutboxRows,
) -> None:
    audited_outbox.insert(
        "dead_letter",
        session_key="z",
        reason="transform_failed",
        detail="Traceback (most recent call last):\n  File x\nKeyError: 'page'\n",
    )
    (detail,) = audited_outbox.rows("SELECT detail FROM outbox.audit_history WHERE session_key = 'z'")[0]
    assert detail.endswith("session-events/0/5 to 6: KeyError: 'page'")


def test_a_delivery_whose_offsets_are_lost_says_so(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.delivery SET kafka_offsets = NULL")
    details = "SELECT DISTINCT detail FROM outbox.audit_history WHERE session_key = 'a' AND what = 'delivered' AND batch_id = 1"
    assert audited_outbox.rows(details) == [("2 outputs in delivery 1 of epoch 1, lane 0, offsets unknown",)]


def test_retries_are_called_so(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute(
        """UPDATE outbox.batch SET kind = 'retry', spark_batch = NULL, start_offsets = NULL, end_offsets = NULL, open_state = NULL
           WHERE batch_id = 3"""
    )
    found = "SELECT batch_id, what FROM outbox.audit_history WHERE session_key = 'a' AND what IN ('closed', 'retried') ORDER BY 1"
    assert audited_outbox.rows(found)[1:3] == [(2, "closed"), (3, "retried")]


def test_reissued_is_what_an_earlier_generation_was_done_with_and_no_later_session(
    audited_outbox: OutboxRows,
) -> None:
    """After a restore with policy reissue all rows have its revision, those of a later generation too."""
    for generation, batch, end in ((2, 6, 400), (3, 7, 500)):
        audited_outbox.insert("generation", generation=generation, revision=1)
        audited_outbox.insert(
            "batch",
            **ledger_row(batch)
            | {
                "generation": generation,
                "run_id": uuid.UUID(int=generation),
                "spark_batch": 0,
                "end_offsets": Jsonb({"topic": {"0": end}}),
            },
        )
    audited_outbox.insert("session_output", **row("a", 4, 0, 0) | {"batch_id": 6, "revision": 1})
    audited_outbox.insert("session_output", **row("n", 5, 0, 0) | {"batch_id": 7, "revision": 1})
    found = "SELECT batch_id, what, revision FROM outbox.audit_history WHERE session_key IN ('a', 'n') AND batch_id > 5 ORDER BY 1"
    assert audited_outbox.rows(found) == [(6, "reissued", 1), (7, "closed", 1)]


def test_reissued_is_also_what_a_generation_without_batches_began_beyond(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("DELETE FROM outbox.batch WHERE kind = 'stream'")
    audited_outbox.insert("generation", generation=2, start_offsets=offsets(4), open_state=Jsonb({}))
    audited_outbox.insert("generation", generation=3, revision=1)
    audited_outbox.insert("batch", **ledger_row(6) | {"generation": 3})
    for key, batch in (("a", 4), ("n", 5)):
        audited_outbox.insert("session_output", **row(key, batch, 0, 0) | {"batch_id": 6, "revision": 1})
    found = "SELECT session_key, what FROM outbox.audit_history WHERE batch_id = 6 ORDER BY 1"
    assert audited_outbox.rows(found) == [("a", "reissued"), ("n", "closed")]


def test_what_was_sent_is_what_the_deliveries_carried_without_what_was_put_aside(
    shared_audited_outbox: OutboxRows,
) -> None:
    sent = shared_audited_outbox.rows(
        "SELECT sent_at, topic, session_key, batch_id FROM outbox.audit_sent WHERE topic = 'out'"
    )
    assert Counter(at for at, *_ in sent) == {minutes(2.5): 3, minutes(3.5): 5, minutes(4.5): 5}
    assert ("d", 2) not in {(key, batch) for _, _, key, batch in sent}
    assert len({row[1:] for row in sent}) == len(sent) == 13
    assert shared_audited_outbox.value("SELECT min(lag) FROM outbox.audit_sent") == timedelta(seconds=30)


def test_topics_by_minute_count_what_was_sent(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        "SELECT minute, topic, output_events, deliveries FROM outbox.audit_topic_minute ORDER BY minute, topic"
    ) == [
        (minutes(number), topic, events, 1)
        for number, events in ((2, 3), (3, 5), (4, 5))
        for topic in ("log", "out")
    ]


def test_minutes_tell_throughput_and_the_longest_lag(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        """SELECT minute, batches, input_events, sessions, output_events, deliveries, delivered_sessions, delivered_events, worst_lag_s
           FROM outbox.audit_minute ORDER BY minute"""
    ) == [
        (minutes(1), 1, 100, 4, 8, 0, 0, 0, None),
        (minutes(2), 1, 100, 4, 8, 1, 3, 6, 90.0),
        (minutes(3), 1, 100, 4, 8, 1, 5, 10, 150.0),
        (minutes(4), 1, 100, 4, 8, 1, 5, 10, 150.0),
    ]


def test_a_spark_batch_of_two_parts_is_one_batch_and_a_requeue_none(audited_outbox: OutboxRows) -> None:
    """Minute 5 holds the requeue, which copies what minute 2 counted."""
    audited_outbox.connection.execute(
        """UPDATE outbox.batch b
           SET spark_batch = 2, part = 1, start_offsets = f.start_offsets, end_offsets = f.end_offsets, created_at = %s
           FROM outbox.batch f WHERE b.batch_id = 4 AND f.batch_id = 3""",
        [minutes(3.5)],
    )
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation WHERE check_name ~ 'ledger'") == []
    minute = "SELECT minute, batches, sessions FROM outbox.audit_minute WHERE sessions > 0 ORDER BY 1"
    assert audited_outbox.rows(minute) == [(minutes(1), 1, 4), (minutes(2), 1, 4), (minutes(3), 1, 8)]


def test_batches_of_two_runs_are_two_though_spark_numbers_them_alike(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute(
        "UPDATE outbox.batch SET spark_batch = 0, run_id = gen_random_uuid(), created_at = %s WHERE batch_id = 2",
        [minutes(1.5)],
    )
    minute = "SELECT batches, sessions FROM outbox.audit_minute WHERE minute = %s"
    assert audited_outbox.rows(minute, minutes(1)) == [(2, 8)]


def test_a_minute_with_nothing_but_a_retry_counts_its_sessions(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert("batch", batch_id=6, kind="retry", **NO_OFFSETS, sessions=2, created_at=minutes(9))
    minute = "SELECT batches, sessions FROM outbox.audit_minute WHERE minute = %s"
    assert audited_outbox.rows(minute, minutes(9)) == [(0, 2)]


def test_the_lanes_of_an_epoch_wait_for_those_of_the_former_one(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert("lane_epoch", epoch=2, from_batch=6, lanes=1)
    audited_outbox.insert("batch", **ledger_row(6))
    audited_outbox.insert("session_output", **row("a", 6, 0, 0))
    waiting = "SELECT epoch, lane, publisher FROM outbox.audit_undelivered ORDER BY 1, 2"
    assert audited_outbox.rows(waiting) == [(1, 1, "nobody"), (2, 0, "waiting")]
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 5")
    assert audited_outbox.rows(waiting) == [(2, 0, "nobody")]


def test_what_waits_is_shown_by_lane_and_row_by_row(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        "SELECT epoch, lane, publisher, oldest_batch, oldest_committed_at, batches_behind, waiting_rows FROM outbox.audit_undelivered"
    ) == [(1, 1, "nobody", 4, minutes(4), 2, 3)]
    assert shared_audited_outbox.rows(
        "SELECT lane, batch_id, session_key, committed_at, sessions, output_events FROM outbox.audit_undelivered_row ORDER BY 2, 3"
    ) == [(1, 4, "c", minutes(4), 1, 2), (1, 4, "d", minutes(4), 1, 2), (1, 5, "d", minutes(5), 1, 2)]


def test_nothing_waits_once_the_cursors_are_at_the_end(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 5")
    assert audited_outbox.rows("SELECT * FROM outbox.audit_undelivered") == []
    assert audited_outbox.rows("SELECT * FROM outbox.audit_undelivered_row") == []


def test_a_lane_inside_a_batch_waits_with_the_rest_of_it(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute(
        "UPDATE outbox.lane SET cursor_batch = 4, cursor_key = 'c' WHERE lane = 1"
    )
    assert audited_outbox.rows(
        "SELECT batch_id, session_key FROM outbox.audit_undelivered_row ORDER BY 1"
    ) == [
        (4, "d"),
        (5, "d"),
    ]


def test_a_lane_that_no_publisher_has_run_waits_with_all_its_rows(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert("lane_epoch", epoch=2, from_batch=6, lanes=1)
    audited_outbox.insert("batch", batch_id=6, spark_batch=9, created_at=minutes(6))
    audited_outbox.insert("session_output", batch_id=6)
    assert (2, 0, 6, 1) in audited_outbox.rows(
        "SELECT epoch, lane, oldest_batch, waiting_rows FROM outbox.audit_undelivered"
    )


def test_dead_letters_one_by_one_and_by_reason(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        """SELECT reason, state, session_key, events, kept_events, first_event, resolved_batch, ended_at
           FROM outbox.audit_dead_letter ORDER BY reason"""
    ) == [
        ("malformed", "open", None, 2, 2, {}, None, None),
        ("restarted", "resolved", "a", 2, 2, {}, 2, minutes(2)),
    ]
    assert shared_audited_outbox.rows("SELECT * FROM outbox.audit_dead_letter_reason ORDER BY reason") == [
        ("malformed", "open", 1, 2, minutes(1), minutes(1)),
        ("restarted", "resolved", 1, 2, minutes(1), minutes(1)),
    ]


def test_keys_that_never_produced_an_output_are_found(audited_outbox: OutboxRows) -> None:
    # e: only letters; f: a session for which the transform returned nothing; a has outputs beside its letter.
    audited_outbox.insert(
        "dead_letter",
        session_key="e",
        first_offset=70,
        last_offset=70,
        closing_offset=71,
        created_at=minutes(1),
    )
    audited_outbox.insert(
        "dead_letter",
        session_key="e",
        first_offset=80,
        last_offset=80,
        closing_offset=81,
        state="discarded",
        created_at=minutes(2),
    )
    audited_outbox.insert(
        "session_output", session_key="f", batch_id=3, session_outputs=[0], topics=[], values=[]
    )
    found = "SELECT session_key, sessions, dead_letters, open_letters, newest_at FROM outbox.audit_key_without_output ORDER BY 1"
    assert audited_outbox.rows(found) == [("e", 0, 2, 1, minutes(2)), ("f", 1, 0, 0, minutes(3))]


def test_replays_tell_what_they_have_sent(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows(
        "SELECT replay_id, state, began_at, ended_at, rows_sent FROM outbox.audit_replay"
    ) == [(1, "done", minutes(10), minutes(11), 7)]
    found = shared_audited_outbox.rows(
        "SELECT session_key, batch_id, output_events, certain FROM outbox.audit_replayed WHERE replay_id = 1 ORDER BY 2, 1"
    )
    assert found == [(key, batch, 1, True) for batch in (1, 2) for key in "abcd" if (key, batch) != ("d", 2)]


@pytest.mark.parametrize(
    ("cursor", "sent"), [((0, None), []), ((1, "b"), ["a", "b"]), ((1, None), ["a", "b", "c", "d"])]
)
def test_a_replay_that_nobody_works_on_has_sent_what_is_up_to_its_cursor(
    audited_outbox: OutboxRows, cursor: tuple[int, str | None], sent: list[str]
) -> None:
    audited_outbox.connection.execute(
        "UPDATE outbox.replay SET state = 'running', cursor_batch = %s, cursor_key = %s", cursor
    )
    assert audited_outbox.rows("SELECT state, ended_at FROM outbox.audit_replay") == [("interrupted", None)]
    assert [
        key for (key,) in audited_outbox.rows("SELECT session_key FROM outbox.audit_replayed ORDER BY 1")
    ] == sent


def test_a_row_without_outputs_was_not_replayed(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.replay SET topics = NULL")
    audited_outbox.connection.execute(
        """UPDATE outbox.session_output SET topics = '{}', "values" = '{}', session_outputs = '{0}' WHERE session_key = 'a'"""
    )
    keys = "SELECT DISTINCT session_key FROM outbox.audit_replayed ORDER BY 1"
    assert audited_outbox.rows(keys) == [("b",), ("c",), ("d",)]


def test_a_replay_of_some_keys_or_topics_has_sent_no_others(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.replay SET only_keys = true, topics = NULL")
    audited_outbox.insert("replay_key", session_key="c")
    assert audited_outbox.rows(
        "SELECT session_key, batch_id, output_events FROM outbox.audit_replayed ORDER BY 2"
    ) == [("c", 1, 2), ("c", 2, 2)]
    audited_outbox.connection.execute("UPDATE outbox.replay SET topics = ARRAY['other']")
    assert audited_outbox.rows("SELECT * FROM outbox.audit_replayed") == []


def test_the_topic_of_a_retried_session_is_found_though_its_generation_has_forgotten_it(
    audited_outbox: OutboxRows,
) -> None:
    audited_outbox.insert("generation", generation=2, topics=Jsonb({"new": "new-events"}))
    audited_outbox.connection.execute("UPDATE outbox.batch SET generation = 2 WHERE batch_id = 4")
    topics = "SELECT DISTINCT topic FROM outbox.audit_session"
    assert audited_outbox.rows(topics) == [("session-events",)]


def test_every_audit_view_and_column_is_explained(shared_audited_outbox: OutboxRows) -> None:
    assert (
        shared_audited_outbox.rows(
            """SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
               WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'v' AND c.relname ~ '^audit_'
                 AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL)"""
        )
        == []
    )


def test_an_operator_earlier_in_the_search_path_changes_no_answer(audited_outbox: OutboxRows) -> None:
    for statement in (
        "CREATE SCHEMA other",
        "CREATE FUNCTION other.never(bigint, bigint) RETURNS boolean LANGUAGE sql RETURN false",
        "CREATE OPERATOR other.>= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = other.never)",
        "SET search_path = other, pg_catalog",
    ):
        audited_outbox.connection.execute(statement.encode())
    assert audited_outbox.value("SELECT 2::bigint >= 1::bigint") is False
    assert audited_outbox.value("SELECT outbox.cursor_covers(1, NULL, 3, NULL, 2, 'a')") is True
    assert audited_outbox.value("SELECT count(*) FROM outbox.batch_rows(1, 5)") == 17
