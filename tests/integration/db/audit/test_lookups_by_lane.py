"""What audits ask of many rows is looked up by lane and batch, whatever the version of Postgres (docs/performance/audit-plans.txt)."""

import pytest

from tests.support.outbox.valid_rows import OutboxRows

ROWS = """
    INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
        session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
    SELECT md5(i::text), 1 + i / 100, i % 4, 0, '{topic}', '{0}', ARRAY[i], ARRAY[i], '{0}', '{0}', '{2}', '{1}', '{out}',
        ARRAY[convert_to(repeat('x', 500), 'UTF8')]
    FROM generate_series(0, 99999) i
"""
LANES = """
    INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)
    SELECT 1, lane, 990, 990, gen_random_uuid() FROM generate_series(0, 3) lane
"""
LEDGER = """
    INSERT INTO outbox.batch (batch_id, kind, generation, run_id, transform_fingerprint, created_at)
    SELECT b, 'requeue', 1, gen_random_uuid(), 'test', now() - (1000 - b) * interval '1 minute'
    FROM generate_series(1, 1000) b
"""
DELIVERIES = """
    INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, committed_at)
    SELECT 1, lane, b, b - 1, b, 25, 25, now() - (1000 - b) * interval '1 minute' FROM generate_series(1, 990) b, generate_series(0, 3) lane
"""


@pytest.fixture(scope="module")
def many(module_outbox: OutboxRows) -> OutboxRows:
    """100,000 rows of four lanes in 1,000 batches, the last ten of which are undelivered."""
    module_outbox.insert("generation")
    for statement in (
        "INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (1, 1, 4)",
        LANES,
        ROWS,
        LEDGER,
        DELIVERIES,
        "VACUUM ANALYZE",
    ):
        module_outbox.connection.execute(statement.encode())
    return module_outbox


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("SELECT * FROM outbox.audit_sent WHERE topic = 'out'", "(lane = d.lane)"),
        ("SELECT * FROM outbox.audit_undelivered_row ORDER BY batch_id LIMIT 50", "(lane = n.lane)"),
        ("SELECT batch_id, session_key FROM outbox.batch_rows(500, 520)", "(lane = ANY "),
        ("SELECT * FROM outbox.check_batch_counts(500, 520)", "(lane = ANY "),
        ("SELECT * FROM outbox.check_emitted_twice(500, 520)", "(lane = ANY "),
    ],
)
def test_rows_are_looked_up_by_lane_and_batch(many: OutboxRows, query: str, condition: str) -> None:
    plan = [str(line) for (line,) in many.rows(f"EXPLAIN {query}")]
    assert not [line for line in plan if "Seq Scan on session_output_p00000000" in line], "\n".join(plan)
    assert [line for line in plan if "Index Cond" in line and condition in line and "batch_id" in line], (
        "\n".join(plan)
    )


def test_a_range_of_batches_has_the_rows_of_lanes_that_no_epoch_has_too(many: OutboxRows) -> None:
    with many.connection.transaction(force_rollback=True):
        many.connection.execute(
            "UPDATE outbox.session_output SET lane = 9 WHERE batch_id = 500 AND session_starts[1] < 49903"
        )
        assert many.value("SELECT count(*) FROM outbox.batch_rows(500, 500)") == 100
        many.connection.execute("DELETE FROM outbox.delivery")
        many.connection.execute("DELETE FROM outbox.lane")
        many.connection.execute("DELETE FROM outbox.lane_epoch")
        assert many.value("SELECT count(*) FROM outbox.batch_rows(499, 500)") == 200


MANY_DELIVERIES = """
    INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, committed_at)
    SELECT 1, lane, b, b - 1, b, 25, 25, now() FROM generate_series(991, 61000) b, generate_series(0, 3) lane
"""


def test_a_row_finds_its_delivery_by_batch_where_its_lane_has_many(many: OutboxRows) -> None:
    """Not from the lane's first one on: the planner takes min(seq) for a reason to walk the primary key."""
    with many.connection.transaction(force_rollback=True):
        index = many.value("SELECT pg_get_indexdef('outbox.delivery_batches_idx'::regclass)")
        many.connection.execute("DROP INDEX outbox.delivery_batches_idx")
        many.connection.execute(MANY_DELIVERIES.encode())
        many.connection.execute(index.encode())  # at once: row by row takes longer
        many.connection.execute("ANALYZE outbox.delivery")
        query = "SELECT delivery_seq, skipped FROM outbox.output_row WHERE session_key = md5('99999')"
        plan = [str(line) for (line,) in many.rows(f"EXPLAIN {query}")]
    assert sum("delivery_batches_idx" in line for line in plan) == 2, "\n".join(plan)
    assert not [line for line in plan if "delivery_pkey" in line]
