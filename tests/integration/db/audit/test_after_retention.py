"""What retention leaves is no break, whatever single rows something named; what it would never have taken is one."""

import pytest

from db.statements import queries
from tests.support.outbox.audited import ledger_row, minutes
from tests.support.outbox.valid_rows import NO_OFFSETS, RUN, OutboxRows

_PRUNING = queries("publisher.retention", "pruning")

FLOOR = 10_000
FOUND = "SELECT check_name, batch_id, detail FROM outbox.audit_reconciliation ORDER BY batch_id, check_name"


@pytest.fixture
def pruned(outbox: OutboxRows) -> OutboxRows:
    """The ledger from batch 9,980 on, a retry among its stream batches, and what retention left of it below its first partition."""
    outbox.insert("generation")
    outbox.insert("lane_epoch", lanes=2)
    outbox.insert("lane_epoch", epoch=2, from_batch=9_995, lanes=2)
    outbox.connection.execute("SELECT outbox.ensure_partitions(10000, 10000)")
    outbox.connection.execute("DROP TABLE outbox.session_output_p00000000")
    spark_batch = 0
    for number in range(9_980, 10_006):
        if number == FLOOR - 1:
            outbox.insert("batch", batch_id=number, kind="retry", **NO_OFFSETS, created_at=minutes(number))
            continue
        spark_batch += 1
        outbox.insert(
            "batch",
            **ledger_row(spark_batch)
            | {
                "batch_id": number,
                "sessions": 0,
                "output_events": 0,
                "output_bytes": 0,
                "created_at": minutes(number),
            },
        )
    outbox.insert("generation", generation=2, from_generation=1, from_batch=9_990)
    for epoch, cursor in ((1, 9_994), (2, 10_005)):
        for lane in (0, 1):
            outbox.insert("lane", epoch=epoch, lane=lane, seq=1, cursor_batch=cursor, cursor_commit_id=RUN)
    outbox.connection.execute(_PRUNING["batches"], {"keep_s": 0, "rows": 100, "after": 0})
    # The checks of the ledger are asked here, not those of deliveries.
    outbox.connection.execute("DELETE FROM outbox.lane")
    return outbox


def test_single_rows_that_retention_leaves_in_the_ledger_are_no_break(pruned: OutboxRows) -> None:
    kept = "SELECT batch_id FROM outbox.batch WHERE batch_id < 10000 ORDER BY 1"
    assert pruned.rows(kept) == [(9_990,), (9_994,), (9_999,)]
    assert pruned.rows(FOUND) == []


def test_a_break_where_rows_are_kept_is_named_after_retention_too(pruned: OutboxRows) -> None:
    pruned.connection.execute(
        """UPDATE outbox.batch SET end_offsets = '{"topic": {"0": 1}}', start_offsets = '{}' WHERE batch_id = 10003"""
    )
    assert [(check, batch) for check, batch, _ in pruned.rows(FOUND)] == [
        ("ledger_discontinuous", 10_003),
        ("ledger_discontinuous", 10_004),
    ]


def test_a_generation_of_which_the_first_rows_are_pruned_is_no_break(pruned: OutboxRows) -> None:
    """The first that is left need not begin where the generation does."""
    pruned.connection.execute("""UPDATE outbox.generation SET start_offsets = '{"topic": {"0": 5}}'""")
    assert pruned.rows(FOUND) == []


def test_a_break_below_what_is_kept_is_named_where_no_row_is_missing(pruned: OutboxRows) -> None:
    pruned.insert(
        "batch", **ledger_row(13) | {"batch_id": 9_991, "sessions": 0, "created_at": minutes(9_991)}
    )
    (found,) = pruned.rows(FOUND)
    assert found[:2] == ("ledger_discontinuous", 9_991)


LOST = "SELECT batch_id, severity, detail FROM outbox.audit_reconciliation WHERE check_name = 'rows_kept'"


def test_a_partition_that_is_gone_before_it_was_delivered_is_named(audited_outbox: OutboxRows) -> None:
    """Lane 1 stands after batch 3. Retention takes no such partition; a DETACH or a restore without it does."""
    audited_outbox.connection.execute(
        "ALTER TABLE outbox.session_output DETACH PARTITION outbox.session_output_p00000000"
    )
    detail = "session_output_p00000000 is not there, and of its 5 sessions in batches 4 to 5 some were not delivered"
    assert audited_outbox.rows(LOST) == [(4, "critical", detail)]
    assert audited_outbox.rows("SELECT 1 FROM outbox.audit_reconcile(6) WHERE check_name = 'rows_kept'") == []
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 5")
    assert audited_outbox.rows(LOST) == []


def test_the_partition_of_a_lane_that_no_publisher_has_run_is_missed(audited_outbox: OutboxRows) -> None:
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 5")
    audited_outbox.insert("lane_epoch", epoch=2, from_batch=6, lanes=1)
    audited_outbox.insert("batch", batch_id=20_000, spark_batch=9, sessions=7)
    assert [batch for batch, *_ in audited_outbox.rows(LOST)] == [20_000]


def test_what_was_delivered_and_dropped_before_a_resume_set_the_lane_back_is_not_missed(
    audited_outbox: OutboxRows,
) -> None:
    audited_outbox.connection.execute("DROP TABLE outbox.session_output_p00000000")
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 5 WHERE lane = 0")
    audited_outbox.insert("delivery", lane=1, seq=2, after_batch=3, to_batch=5, sessions=3, events=6)
    audited_outbox.insert(
        "delivery", lane=1, seq=3, kind="resume", after_batch=5, to_batch=1, sessions=0, events=0
    )
    audited_outbox.connection.execute("UPDATE outbox.lane SET cursor_batch = 1, seq = 3 WHERE lane = 1")
    assert audited_outbox.rows(LOST) == []
