"""audit_reconciliation returns no rows when all is well, and names each thing that is not."""

import pytest

from tests.support.outbox.audited import minutes
from tests.support.outbox.valid_rows import OutboxRows

ROW = "UPDATE outbox.session_output SET {} WHERE session_key = '{}' AND batch_id = {}"


def test_no_rows_when_all_is_well(shared_audited_outbox: OutboxRows) -> None:
    assert shared_audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []
    assert shared_audited_outbox.rows("SELECT * FROM outbox.audit_ledger") == []


def test_no_rows_in_an_empty_outbox(outbox: OutboxRows) -> None:
    assert outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []


DAMAGES = [
    (
        "DELETE FROM outbox.batch WHERE batch_id = 3",
        {"ledger_missing", "ledger_discontinuous", "rows_in_ledger", "mirror"},
        4,
        "batch 3 is missing",
    ),
    ("DELETE FROM outbox.batch WHERE batch_id < 3", {"ledger_missing", "rows_in_ledger"}, 3, "batches 1 to 2 are missing"),
    (
        """UPDATE outbox.batch SET start_offsets = '{"topic": {"0": 101}}' WHERE batch_id = 2""",
        {"ledger_discontinuous"},
        2,
        "batch 2 (Spark batch 1, part 0) does not continue batch 1 (Spark batch 0, part 0): topic/0 from 101, not 100",
    ),
    (
        "UPDATE outbox.batch SET start_offsets = '{}' WHERE batch_id = 2",
        {"ledger_discontinuous"},
        2,
        "part 0): topic/0 from nowhere, not 100",
    ),
    (
        """UPDATE outbox.batch SET start_offsets = '{"topic": {"0": 1}}' WHERE batch_id = 1""",
        {"ledger_discontinuous"},
        1,
        "generation 1: batch 1 (Spark batch 0, part 0) does not begin where its generation does: topic/0 from 1, not 0",
    ),
    ("UPDATE outbox.batch SET part = 1 WHERE batch_id = 1", {"ledger_discontinuous"}, 1, "does not begin where its generation does"),
    ("UPDATE outbox.batch SET spark_batch = 2, part = 2 WHERE batch_id = 4", {"ledger_discontinuous"}, 4, "(Spark batch 2, part 2)"),
    ("UPDATE outbox.batch SET spark_batch = 2, part = 1 WHERE batch_id = 4", {"ledger_discontinuous"}, 4, "(Spark batch 2, part 1)"),
    ("UPDATE outbox.batch SET part = 1 WHERE batch_id = 4", {"ledger_discontinuous"}, 4, "(Spark batch 3, part 1) does not continue"),
    (
        """UPDATE outbox.batch SET open_state = '{"topic": {"0": {"safe": 201}}}' WHERE batch_id = 2""",
        {"ledger_offsets"},
        2,
        "topic/0: start 100, end 200, safe 201",
    ),
    ("""UPDATE outbox.batch SET end_offsets = '{"topic": {"0": 299}}' WHERE batch_id = 4""", {"ledger_offsets"}, 4, "start 300, end 299"),
    ("UPDATE outbox.batch SET sessions = 3 WHERE batch_id = 2", {"batch_counts"}, 2, "says 3 sessions, 8 outputs, 40 bytes; its"),
    ("UPDATE outbox.batch SET output_events = 9 WHERE batch_id = 2", {"batch_counts"}, 2, "says 4 sessions, 9 outputs"),
    (ROW.format("\"values\"[1] = 'longer than it was'", "a", 2), {"batch_counts"}, 2, "its rows hold 4, 8, 50"),
    ("DELETE FROM outbox.session_output WHERE batch_id = 2", {"batch_counts", "delivery_counts"}, 2, "hold 0, 0, 0"),
    ("DELETE FROM outbox.session_output WHERE session_key = 'b' AND batch_id = 2", {"batch_counts", "delivery_counts"}, 2, "hold 3"),
    (ROW.format("lane = 7", "c", 4), {"lanes"}, 4, "epoch 1 has 2 lanes"),
    (ROW.format("session_ends = ARRAY[29]", "c", 4), {"emitted_once"}, 4, "at topic/0/29 was emitted 2 times for revision 0"),
    ("DELETE FROM outbox.delivery WHERE lane = 0 AND seq = 1", {"delivery_chain"}, 4, "after delivery 0 comes 2"),
    (
        "UPDATE outbox.delivery SET after_key = NULL WHERE lane = 0 AND seq = 2",
        {"delivery_chain", "delivery_counts"},
        4,
        "delivery 2 begins after batch 2, the one before it ended with batch 2 at 'a'",
    ),
    (
        "UPDATE outbox.delivery SET after_batch = 1, after_key = NULL WHERE lane = 0 AND seq = 2",
        {"delivery_chain", "delivery_counts"},
        4,
        "its range from batch 1 (exclusive) to batch 4 holds 6 with 12",
    ),
    ("UPDATE outbox.delivery SET events = 11 WHERE lane = 1", {"delivery_counts", "mirror"}, 3, "5 sessions with 11 outputs"),
    ("UPDATE outbox.lane SET seq = 5 WHERE lane = 0", {"mirror"}, None, "at transaction 5, the newest delivery is 2"),
    ("DELETE FROM outbox.delivery WHERE lane = 1", {"mirror"}, None, "at transaction 1, the newest delivery is missing"),
    ("UPDATE outbox.lane SET cursor_key = 'a' WHERE lane = 0", {"mirror"}, None, "at batch 4 at 'a', the newest delivery at batch 4"),
    ("UPDATE outbox.lane SET sessions = 9 WHERE lane = 0", {"mirror"}, None, "counts 9 sessions with 16 events, its deliveries 8 with 16"),
    ("UPDATE outbox.batch SET commit_id = gen_random_uuid() WHERE batch_id = 3", {"mirror"}, None, "another batch of this number"),
    ("DELETE FROM outbox.session_output WHERE batch_id = 5", {"batch_counts", "parked_kept"}, 2, "requeued as batch 5, which does not"),
    (ROW.format("topics[1] = 'other'", "d", 5), {"parked_kept"}, 2, "its copy in batch 5 differs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "checks", "batch", "words"), DAMAGES, ids=[words[:40] for *_, words in DAMAGES]
)
def test_what_does_not_agree_is_named(
    audited_outbox: OutboxRows, sql: str, checks: set[str], batch: int | None, words: str
) -> None:
    assert audited_outbox.connection.execute(sql.encode()).rowcount > 0
    found = audited_outbox.rows("SELECT check_name, batch_id, detail FROM outbox.audit_reconciliation")
    assert {check for check, _, _ in found} == checks
    assert any(where == batch and words in detail for _, where, detail in found), found


SOUND = [
    # Each run numbers its batches from 0 on, and a batch without new records leaves a number out.
    "UPDATE outbox.batch SET spark_batch = 0, run_id = gen_random_uuid() WHERE batch_id = 3",
    "UPDATE outbox.batch SET spark_batch = 9 WHERE batch_id = 4",
    # What is open ends with the last record that was read, at the most.
    """UPDATE outbox.batch SET open_state = '{"topic": {"0": {"safe": 200}}}' WHERE batch_id = 2""",
    # A partition that was not known before begins anywhere.
    """UPDATE outbox.batch SET start_offsets = start_offsets || '{"new": {"0": 7}}', end_offsets = end_offsets || '{"new": {"0": 9}}'
       WHERE batch_id = 4""",
    """UPDATE outbox.generation SET start_offsets = '{}'""",
    # Written before 0005: a generation began to read at safe offsets.
    """ALTER TABLE outbox.batch DROP CONSTRAINT batch_open_state_known;
       UPDATE outbox.batch SET open_state = NULL;
       UPDATE outbox.generation SET start_offsets = '{"topic": {"0": 5}}';
       CREATE TEMPORARY TABLE upgraded ON COMMIT DROP AS TABLE outbox.generation;
       UPDATE upgraded SET generation = generation + 1, reason = 'upgrade', from_generation = generation;
       INSERT INTO outbox.generation TABLE upgraded""",
]


@pytest.mark.parametrize("sql", SOUND)
def test_what_is_no_break_is_not_named(audited_outbox: OutboxRows, sql: str) -> None:
    audited_outbox.connection.execute(sql.encode())
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []


def test_a_parked_row_that_is_gone_is_named(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert("parked", session_key="c", batch_id=4, lane=1)
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []
    audited_outbox.connection.execute(
        "DELETE FROM outbox.session_output WHERE session_key = 'c' AND batch_id = 4"
    )
    found = audited_outbox.rows(
        "SELECT session_key, detail FROM outbox.audit_reconciliation WHERE check_name = 'parked_kept'"
    )
    assert found == [("c", "parked, but the row is gone")]


def test_rows_of_a_lane_that_only_a_wider_epoch_had_are_named(audited_outbox: OutboxRows) -> None:
    """The index serves lane by lane, so lanes below the most there ever were are a case of their own."""
    audited_outbox.insert("lane_epoch", epoch=2, from_batch=6, lanes=8)
    audited_outbox.connection.execute(
        "UPDATE outbox.session_output SET lane = 5 WHERE session_key = 'c' AND batch_id = 4"
    )
    found = "SELECT session_key, batch_id, lane, epoch, lanes FROM outbox.check_stray_row"
    assert audited_outbox.rows(found) == [("c", 4, 5, 1, 2)]


def test_rows_before_the_first_epoch_are_named(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.lane_epoch SET from_batch = 2")
    found = "SELECT DISTINCT batch_id, epoch FROM outbox.check_stray_row"
    assert audited_outbox.rows(found) == [(1, None)]


def test_a_range_of_batches_leaves_the_others_out(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.batch SET sessions = 3 WHERE batch_id IN (1, 3)")
    checks = "SELECT batch_id FROM outbox.audit_reconcile({}) ORDER BY 1"
    assert audited_outbox.rows(checks.format("")) == [(1,), (3,)]
    assert audited_outbox.rows(checks.format("2, NULL")) == [(3,)]
    assert audited_outbox.rows(checks.format("NULL, 2")) == [(1,)]
    assert audited_outbox.rows(checks.format("2, 2")) == []


def test_what_retention_has_taken_is_no_break(audited_outbox: OutboxRows) -> None:
    """Rows go first, then deliveries and ledger rows below the oldest partition; the ledger may have gaps there."""
    audited_outbox.connection.execute(
        "UPDATE outbox.lane SET seq = 2, cursor_batch = 5, sessions = 8, events = 16 WHERE lane = 1"
    )
    audited_outbox.insert(
        "delivery", lane=1, seq=2, after_batch=3, to_batch=5, sessions=3, events=6, committed_at=minutes(6)
    )
    audited_outbox.insert(
        "delivery", lane=0, seq=3, after_batch=4, to_batch=5, sessions=0, events=0, committed_at=minutes(6)
    )
    audited_outbox.connection.execute("UPDATE outbox.lane SET seq = 3, cursor_batch = 5 WHERE lane = 0")
    audited_outbox.connection.execute(
        "UPDATE outbox.lane SET cursor_commit_id = (SELECT commit_id FROM outbox.batch WHERE batch_id = 5)"
    )
    audited_outbox.connection.execute("DROP TABLE outbox.session_output_p00000000")
    audited_outbox.connection.execute("DELETE FROM outbox.batch WHERE batch_id IN (1, 2)")
    audited_outbox.connection.execute("DELETE FROM outbox.delivery WHERE lane = 0 AND seq = 1")
    audited_outbox.connection.execute("UPDATE outbox.lane SET pruned_seq = 1 WHERE lane = 0")
    audited_outbox.connection.execute("DELETE FROM outbox.parked")
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []


def test_a_resume_is_no_break_of_the_chain(audited_outbox: OutboxRows) -> None:
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
    audited_outbox.connection.execute("UPDATE outbox.lane SET seq = 4 WHERE lane = 0")
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []


def test_a_clock_that_was_set_back_is_told_by_the_ledger_alone(audited_outbox: OutboxRows) -> None:
    """It breaks nothing, and nothing would take it away for weeks."""
    audited_outbox.connection.execute(
        "UPDATE outbox.batch SET created_at = '2026-01-01 11:00+00' WHERE batch_id = 4"
    )
    ((batch, problem, detail),) = audited_outbox.rows(
        "SELECT batch_id, problem, detail FROM outbox.audit_ledger"
    )
    assert (batch, problem) == (4, "time")
    assert "before batch 3" in detail
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []


@pytest.mark.parametrize("bounds", [(1, 2**63 - 1), (None, 2**63 - 1), (5, 3)])
def test_any_bounds_are_taken(audited_outbox: OutboxRows, bounds: tuple[int | None, int]) -> None:
    audited_outbox.connection.execute("UPDATE outbox.delivery SET sessions = 99 WHERE lane = 0 AND seq = 2")
    found = audited_outbox.rows("SELECT check_name FROM outbox.audit_reconcile(%s, %s)", *bounds)
    assert (("delivery_counts",) in found) == (bounds != (5, 3))


def test_a_row_that_was_parked_after_its_first_delivery_counts_in_that_one(
    audited_outbox: OutboxRows,
) -> None:
    """A resume led back to it, and now Kafka refuses it: the second delivery goes without it."""
    _park_on_the_second_pass(audited_outbox)
    assert audited_outbox.rows("SELECT * FROM outbox.audit_reconciliation") == []
    sent = "SELECT session_key, sent_at FROM outbox.audit_sent WHERE batch_id = 4 AND lane = 0 AND topic = 'out' ORDER BY 2, 1"
    assert audited_outbox.rows(sent) == [("a", minutes(4.5)), ("b", minutes(4.5)), ("a", minutes(8))]
    minute = "SELECT output_events FROM outbox.audit_topic_minute WHERE topic = 'out' AND minute = %s"
    assert audited_outbox.rows(minute, minutes(4)) == [(5,)]
    assert audited_outbox.rows(minute, minutes(8)) == [(1,)]
    state = "SELECT state, delivered_at FROM outbox.audit_session WHERE session_key = 'b' AND batch_id = 4"
    assert audited_outbox.rows(state) == [("parked", minutes(4.5))]
    history = "SELECT at, what FROM outbox.audit_history WHERE session_key = 'b' AND batch_id = 4 ORDER BY at"
    assert audited_outbox.rows(history) == [
        (minutes(4), "closed"),
        (minutes(4.5), "delivered"),
        (minutes(7.5), "parked"),
    ]


def _park_on_the_second_pass(audited_outbox: OutboxRows) -> None:
    audited_outbox.insert("delivery", lane=0, seq=3, kind="resume", after_batch=4, to_batch=3, sessions=0, events=0,
                 committed_at=minutes(7))  # fmt: skip
    audited_outbox.insert("parked", session_key="b", batch_id=4, lane=0, after_seq=3, created_at=minutes(7.5))
    audited_outbox.insert(
        "delivery", lane=0, seq=4, after_batch=3, to_batch=4, sessions=1, events=2, committed_at=minutes(8)
    )
    audited_outbox.connection.execute("UPDATE outbox.lane SET seq = 4 WHERE lane = 0")
