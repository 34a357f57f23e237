"""Partitions of session_output are made ahead, by whoever comes first, in nobody's way; the publisher's query uses them well."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.outbox.valid_rows import OutboxRows

POSITION = dict[str, Any]

# What db/README.md tells the publisher to run.
CURSOR_QUERY = """
    SELECT session_key, batch_id, topics, keys, "values", headers FROM outbox.session_output
    WHERE lane = %(lane)s AND (batch_id, session_key) > (%(batch)s, %(key)s) AND batch_id >= %(batch)s AND batch_id <= %(last)s
    ORDER BY batch_id, session_key LIMIT %(limit)s
"""


def partitions(outbox: OutboxRows) -> list[str]:
    """Names of the partitions with their bounds, in order."""
    return [
        f"{name} {bounds}"
        for name, bounds in outbox.rows(
            """SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = 'outbox.session_output'::regclass ORDER BY c.relname"""
        )
    ]


def test_the_migration_makes_the_first_partitions(outbox: OutboxRows) -> None:
    assert partitions(outbox) == [
        "session_output_p00000000 FOR VALUES FROM ('0') TO ('10000')",
        "session_output_p00000001 FOR VALUES FROM ('10000') TO ('20000')",
    ]


def test_making_partitions_twice_makes_them_once(outbox: OutboxRows) -> None:
    assert outbox.value("SELECT outbox.ensure_partitions(19999, 40000)") == 3
    assert outbox.value("SELECT outbox.ensure_partitions(19999, 40000)") == 0
    assert outbox.value("SELECT outbox.ensure_partitions(1, 1)") == 0
    assert partitions(outbox)[2:] == [
        "session_output_p00000002 FOR VALUES FROM ('20000') TO ('30000')",
        "session_output_p00000003 FOR VALUES FROM ('30000') TO ('40000')",
        "session_output_p00000004 FOR VALUES FROM ('40000') TO ('50000')",
    ]


def commit_batches(outbox: OutboxRows, *, each_s: float, sessions: int, count: int = 10_000) -> None:
    """Fill the ledger with batches, one every so many seconds."""
    outbox.insert("generation")
    outbox.connection.execute(
        "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state, sessions,"
        " transform_fingerprint, created_at) SELECT n, 'stream', 1, n, gen_random_uuid(), '{}', '{}', '{}', %s, 'test',"
        " now() - make_interval(secs => (%s - n) * %s::float8) FROM generate_series(1, %s) n",
        (sessions, count, each_s, count),
    )


@pytest.mark.parametrize(
    ("each_s", "sessions", "batches"),
    [
        (0.2, 2, 430_000),  # five a second: a day
        (60.0, 2, 10_000),  # fewer in a day than the narrowest has
        (0.2, 200, 50_000),  # ten million sessions
        (0.2, 20_000, 10_000),
        (0.01, 0, 500_000),  # the widest
    ],
)
def test_a_partition_is_as_wide_as_a_day_or_ten_million_sessions(
    outbox: OutboxRows, each_s: float, sessions: int, batches: int
) -> None:
    """Five years at five batches a second are 1,835 partitions instead of 78,894."""
    commit_batches(outbox, each_s=each_s, sessions=sessions)
    assert outbox.value("SELECT outbox.ensure_partitions(20000, 29999)") == 1
    assert (
        partitions(outbox)[-1]
        == f"session_output_p00000002 FOR VALUES FROM ('20000') TO ('{20_000 + batches}')"
    )
    last = 20_000 + batches - 1
    assert outbox.value("SELECT outbox.ensure_partitions(1, %s)", last) == 0
    assert outbox.value("SELECT outbox.ensure_partitions(%s::bigint, %s::bigint)", last, last + 1) == 1


def test_a_wide_partition_ends_where_the_next_one_begins_and_a_young_outbox_has_narrow_ones(
    outbox: OutboxRows,
) -> None:
    commit_batches(outbox, each_s=0.2, sessions=2, count=9_999)
    assert outbox.value("SELECT outbox.ensure_partitions(40000, 40000)") == 1
    outbox.connection.execute(
        "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
        " transform_fingerprint) VALUES (10000, 'stream', 1, 0, gen_random_uuid(), '{}', '{}', '{}', 'test')"
    )
    assert outbox.value("SELECT outbox.ensure_partitions(20000, 60000)") == 2
    assert [each.split(" FROM ")[1] for each in partitions(outbox)[2:]] == [
        "('20000') TO ('40000')",
        "('40000') TO ('50000')",
        "('50000') TO ('480000')",
    ]


def test_of_many_callers_at_once_one_makes_each_partition(outbox: OutboxRows) -> None:
    def call(_: int) -> int:
        with psycopg.connect(outbox.dsn) as connection:
            made = connection.execute("SELECT outbox.ensure_partitions(20000, 119999)").fetchone()
            assert made is not None
            return int(made[0])

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(call, range(6))) == 10
    assert len(partitions(outbox)) == 12


def test_a_caller_that_waited_sees_what_the_other_made(outbox: OutboxRows) -> None:
    with psycopg.connect(outbox.dsn) as first, ThreadPoolExecutor(1) as pool:
        first.execute("SELECT outbox.ensure_partitions(30000, 30000)")
        second = pool.submit(outbox.value, "SELECT outbox.ensure_partitions(30000, 30000)")
        waiting = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox.session_output'::regclass"
        )
        while first.execute(waiting).fetchone() == (0,):
            assert not second.done()
        first.commit()
        assert second.result() == 0


def test_readers_and_writers_are_not_in_the_way(outbox: OutboxRows) -> None:
    outbox.insert_parents("session_output")
    outbox.insert("session_output")
    with psycopg.connect(outbox.dsn) as reader:
        # A reader in mid-transaction holds locks on the parent, its partitions and their indexes; so does a writer.
        assert reader.execute("SELECT count(*) FROM outbox.session_output").fetchone() == (1,)
        OutboxRows(outbox.dsn, reader).insert("session_output", session_key="uncommitted")
        with psycopg.connect(outbox.dsn, options="-c lock_timeout=2s") as maker:
            assert maker.execute("SELECT outbox.ensure_partitions(20000, 20000)").fetchone() == (1,)
            # And they continue while the maker has not committed.
            reader.execute("SET lock_timeout = '2s'")
            assert reader.execute("SELECT count(*) FROM outbox.session_output").fetchone() == (2,)
            OutboxRows(outbox.dsn, reader).insert("session_output", session_key="also uncommitted")


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 1),
        (-5, 5),
        (5, 4),
        (1, 1_000_001),
        (2_000_000, 2_000_000),
        (1, None),
        (None, 1),
        (999_999_999_999, 1_000_000_000_000),
        (1, 2**63 - 1),
    ],
)
def test_nonsense_is_refused(outbox: OutboxRows, arguments: tuple[int | None, int | None]) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="at most a million batches after the newest"):
        outbox.value("SELECT outbox.ensure_partitions(%s::bigint, %s::bigint)", *arguments)


def test_partitions_are_made_neither_far_ahead_of_the_ledger_nor_again_behind_it(outbox: OutboxRows) -> None:
    """Whoever may make them: only the schema's owner removes one that is ahead of the ledger."""
    outbox.insert("generation")
    outbox.connection.execute("SELECT outbox.ensure_partitions(1, 59999)")
    outbox.insert("batch", batch_id=50_005)
    outbox.connection.execute("DROP TABLE outbox.session_output_p00000001, outbox.session_output_p00000002")
    before = partitions(outbox)
    assert outbox.value("SELECT outbox.ensure_partitions(10000, 59999)") == 0
    assert partitions(outbox) == before
    assert outbox.value("SELECT outbox.ensure_partitions(1050005, 1050005)") == 1
    with pytest.raises(errors.InvalidParameterValue, match="after the newest, 50005"):
        outbox.value("SELECT outbox.ensure_partitions(1050006, 1050006)")


def test_a_batch_without_a_partition_is_refused(outbox: OutboxRows) -> None:
    outbox.insert_parents("session_output")
    with pytest.raises(errors.CheckViolation, match="no partition of relation"):
        outbox.insert("session_output", batch_id=20_000)


def test_each_partition_is_like_the_first(outbox: OutboxRows) -> None:
    outbox.value("SELECT outbox.ensure_partitions(880000, 880000)")
    shapes = set()
    for name in ("session_output_p00000000", "session_output_p00000088"):
        constraints = outbox.rows(
            """SELECT replace(conname, %s, '') , pg_get_constraintdef(oid) FROM pg_constraint
               WHERE conrelid = %s::regclass AND contype IN ('c', 'u') ORDER BY 1""",
            name,
            f"outbox.{name}",
        )
        indexes = outbox.rows(
            "SELECT replace(indexdef, %s, '') FROM pg_indexes WHERE schemaname = 'outbox' AND tablename = %s ORDER BY 1",
            name,
            name,
        )
        options = outbox.value("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", f"outbox.{name}")
        statistics = outbox.rows(
            "SELECT attname, attstattarget FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY 1",
            f"outbox.{name}",
        )
        shapes.add(repr((constraints, indexes, options, statistics)))
    (shape,) = shapes
    assert "toast_tuple_target=8160" in shape
    assert "_cursor_idx" in shape
    assert "session_output_counts_agree" in shape


@pytest.fixture(scope="module")
def loaded(module_outbox: OutboxRows) -> OutboxRows:
    """200,000 rows of 8 lanes in 500 batches over six partitions, and one large batch of lane 0 in the last."""
    module_outbox.insert("generation")
    module_outbox.connection.execute("SELECT outbox.ensure_partitions(1, 59999)")
    insert = """
        INSERT INTO outbox.session_output (session_key, batch_id, lane, revision, session_topic_ids, session_partitions,
            session_starts, session_ends, session_started_ms, session_ended_ms, session_events, session_outputs, topics, "values")
        SELECT {key}, {batch}, {lane}, 0, '{{topic}}', '{{0}}', ARRAY[i], ARRAY[i], '{{0}}', '{{0}}', '{{2}}', '{{1}}', '{{out}}',
            ARRAY['\\x7b7d'::bytea] FROM generate_series(0, {last}) i
    """
    spread = insert.format(
        key="md5(i::text)", batch="1 + 100 * (i / 400)", lane="i %% 8", last=199_999
    ).replace("%%", "%")
    large = insert.format(key="to_char(i, 'FM0000000')", batch="50500", lane="0", last=49_999)
    module_outbox.connection.execute(spread.encode())
    module_outbox.connection.execute(large.encode())
    module_outbox.connection.execute("VACUUM ANALYZE outbox.session_output")
    return module_outbox


def plan(outbox: OutboxRows, position: POSITION, mode: str) -> dict[str, Any]:
    """Return the plan of the publisher's query, as executed."""
    with outbox.connection.transaction():
        outbox.connection.execute("SELECT set_config('plan_cache_mode', %s, true)", [mode])
        cursor = outbox.connection.execute(
            "PREPARE cursor_query (integer, bigint, text, bigint, integer) AS "
            + re.sub(
                r"%\((\w+)\)s",
                lambda m: f"${['lane', 'batch', 'key', 'last', 'limit'].index(m[1]) + 1}",
                CURSOR_QUERY,
            )
        )
        values = [position[name] for name in ("lane", "batch", "key", "last", "limit")]
        literals = ", ".join("'" + str(v) + "'" for v in values)
        cursor = outbox.connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, FORMAT JSON) EXECUTE cursor_query ({literals})".encode()
        )
        ((document,),) = cursor.fetchall()
        outbox.connection.execute("DEALLOCATE cursor_query")
    root: dict[str, Any] = (json.loads(document) if isinstance(document, str) else document)[0]["Plan"]
    return root


def nodes(root: dict[str, Any]) -> list[dict[str, Any]]:
    """All nodes of a plan."""
    return [root, *(n for child in root.get("Plans", []) for n in nodes(child))]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "position",
    [
        {"lane": 3, "batch": 1, "key": "", "last": 60_000, "limit": 1_000},
        {"lane": 3, "batch": 29_901, "key": "8", "last": 60_000, "limit": 100},
        {"lane": 0, "batch": 50_500, "key": "0049000", "last": 50_500, "limit": 100},
    ],
)
def test_the_publisher_reads_in_order_without_a_sort(
    loaded: OutboxRows, position: POSITION, mode: str
) -> None:
    everything = nodes(plan(loaded, position, mode))
    kinds = {node["Node Type"] for node in everything}
    assert kinds <= {"Limit", "Append", "Index Scan"}
    executed = [node for node in everything if node.get("Index Name") and node["Actual Loops"]]
    assert executed
    assert all(node["Index Name"].endswith("_cursor_idx") for node in executed)
    # Only the partition of the cursor and those after it are looked at, and in them only what is returned.
    first = position["batch"] // 10_000
    assert all(int(node["Relation Name"][-8:]) >= first for node in executed)
    assert all(node.get("Rows Removed by Filter", 0) == 0 for node in executed)
    assert (
        sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in executed)
        < 2 * position["limit"] + 60
    )


def test_a_cursor_inside_a_large_batch_reads_no_more_than_it_returns(loaded: OutboxRows) -> None:
    """The bound on batch_id, which is there for the partitions, must not become the index scan's starting point."""
    at_the_end = {"lane": 0, "batch": 50_500, "key": "0049989", "last": 50_500, "limit": 1_000}
    root = plan(loaded, at_the_end, "force_custom_plan")
    assert root["Actual Rows"] == 10
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 30


def test_paging_returns_every_row_once_in_order(loaded: OutboxRows) -> None:
    expected = loaded.rows(
        "SELECT batch_id, session_key FROM outbox.session_output WHERE lane = 3 AND batch_id > 19000 AND batch_id <= 40000"
    )
    position: POSITION = {"lane": 3, "batch": 19_001, "key": "", "last": 40_000, "limit": 777}
    found: list[tuple[int, str]] = []
    while rows := loaded.connection.execute(CURSOR_QUERY, position).fetchall():
        found += [(row[1], row[0]) for row in rows]
        position |= {"batch": found[-1][0], "key": found[-1][1]}
    assert found == sorted(expected, key=lambda row: (row[0], row[1].encode()))
    assert len(found) == len(expected) > 10_000
