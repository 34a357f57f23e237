"""The queries of docs/audit.md find their rows by index: none reads session_output or the deliveries from end to end."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.outbox.audited import QUERIES
from tests.support.outbox.valid_rows import OutboxRows

BY_INDEX = {
    "session_history": ("session_output_p", "delivery"),
    "session": ("session_output_p", "delivery"),
    "session_output": ("session_output_p", "delivery"),
    "lineage": ("session_output_p", "delivery"),
    "lineage_of_batch": ("session_output_p", "delivery"),
    "sent": ("session_output_p", "delivery"),
    "topic_minute": ("session_output_p", "delivery"),
    "minute": ("session_output_p", "delivery", "batch"),
    "undelivered": ("session_output_p",),
    "undelivered_rows": ("session_output_p",),
    "replayed": ("session_output_p",),
    "reconcile_recent": ("session_output_p",),
    "latency": ("session_output_p", "delivery"),
}
"""Query -> relations, by the beginning of their names, that it must not read from end to end. What a plan never runs costs nothing."""

LOAD = """
INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,
    transform_fingerprint, sessions, output_events, output_bytes, created_at)
SELECT 1 + 14 * n, 'stream', 1, n, gen_random_uuid(), '{}', '{}', '{}', 'test', 10, 10, 20,
       now() - interval '20 days' + n * interval '14 minutes'
FROM generate_series(0, 1999) n;

INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions, session_starts,
    session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
SELECT 'sess_' || lpad(n::text, 6, '0'), 1 + 14 * (n / 10), n % 4, 0, '{topic}', '{0}', ARRAY[n * 10],
       ARRAY[n * 10 + 9], '{0}', '{0}', '{10}', '{1}', '{shop.sessions}', ARRAY[convert_to('{}', 'UTF8')]
FROM generate_series(0, 19999) n;

INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)
SELECT 1, lane, 1990, 1 + 14 * 1989, gen_random_uuid() FROM generate_series(0, 3) lane;

INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events, kafka_offsets, committed_at)
SELECT 1, lane, n + 1, greatest(0, 1 + 14 * (n - 1)), 1 + 14 * n, 2, 2, '{"shop.sessions": {"0": [0, 9]}}',
       now() - interval '20 days' + n * interval '14 minutes 1 second'
FROM generate_series(0, 1989) n, generate_series(0, 3) lane;

ANALYZE;
"""


@pytest.fixture(scope="module")
def loaded(module_outbox: OutboxRows) -> Iterator[OutboxRows]:
    """20,000 sessions over three partitions, nearly all delivered over the last 20 days."""
    module_outbox.insert("generation")
    module_outbox.insert("lane_epoch", lanes=4)
    module_outbox.connection.execute("SELECT outbox.ensure_partitions(20000, 29999)")
    module_outbox.connection.execute(LOAD.encode())
    module_outbox.connection.execute("SET ROLE outbox_auditor")
    yield module_outbox
    module_outbox.connection.execute("RESET ROLE")


@pytest.mark.parametrize("name", BY_INDEX)
def test_the_query_finds_its_rows_by_index(loaded: OutboxRows, name: str) -> None:
    ((plan,),) = loaded.connection.execute(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {QUERIES[name]}".encode()
    ).fetchall()
    scanned = {
        node["Relation Name"]
        for node in _nodes(plan[0]["Plan"])
        if node["Node Type"] == "Seq Scan" and node["Actual Loops"]
    }
    assert [relation for relation in scanned if relation.startswith(BY_INDEX[name])] == []


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def test_the_lineage_of_a_batch_touches_its_partition_alone(loaded: OutboxRows) -> None:
    plan = loaded.value("EXPLAIN (FORMAT JSON) SELECT * FROM outbox.output_lineage WHERE batch_id = 15001")[0]
    touched = {node.get("Relation Name", "") for node in _nodes(plan["Plan"])}
    assert [name for name in touched if name.startswith("session_output_p")] == ["session_output_p00000001"]


def test_a_plan_that_reads_a_partition_from_end_to_end_would_be_seen(loaded: OutboxRows) -> None:
    """Else the tests above could not fail."""
    query = "EXPLAIN (FORMAT JSON) SELECT count(revision) FROM outbox.session_output"
    plan = loaded.value(query)[0]["Plan"]
    assert any(
        node["Node Type"] == "Seq Scan" and node["Relation Name"].startswith("session_output_p")
        for node in _nodes(plan)
    )


def test_the_latency_looks_at_few_deliveries_for_each_row(loaded: OutboxRows) -> None:
    """By the index of lanes it would look at every delivery of the row's lane."""
    ((plan,),) = loaded.connection.execute(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {QUERIES['latency']}".encode()
    ).fetchall()
    looked_at = [
        node["Actual Rows"]
        for node in _nodes(plan[0]["Plan"])
        if node.get("Index Name", "").startswith("delivery_")
    ]
    assert looked_at
    assert max(looked_at) < 100


def test_a_function_that_catches_errors_is_in_no_parallel_plan(outbox: OutboxRows) -> None:
    """Its exception block is a subtransaction, which a parallel worker may not begin."""
    found = dict(
        outbox.rows(
            "SELECT proname::text, proparallel::text FROM pg_proc"
            " WHERE pronamespace = 'outbox'::regnamespace AND prosrc ~ 'EXCEPTION WHEN'"
        )
    )
    assert {"try_json", "remembers"} <= found.keys()
    assert "s" not in found.values()
